"""What leaves a model's last layer, for a head to read."""

from contextlib import ExitStack

from llama_cpp import llama_cpp as api

from backends.base.hidden_states import HiddenStates
from backends.llamacpp.heads.pass_rows import forget_hidden, hidden, keep_hidden
from backends.llamacpp.llama_context import LlamaContext


def add_final_states(
    target: LlamaContext, head: api.llama_model_p, resources: ExitStack, most: int | None = None
) -> HiddenStates:
    """Let passes leave hidden states of the width that a head hands out, from the next one on.

    resources: to leave them no longer. most: rows kept, at least of a pass; None for all.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export them.
    """
    pointer, width = target.pointer, api.llama_model_n_embd_out(head)
    assert pointer is not None, "a context that was closed has no heads"
    keep_hidden(pointer, only_outputs=False)
    rows = target.n_ctx if most is None else most
    states = HiddenStates(lambda count: hidden(pointer, count, width), width, rows)
    target.add_states(states)
    resources.callback(_remove, target, states)
    return states


def _remove(target: LlamaContext, states: HiddenStates) -> None:
    """Leave them no longer, unless another head reads them."""
    if not target.remove_states(states) and target.pointer is not None:
        forget_hidden(target.pointer)
