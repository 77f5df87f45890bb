"""How far llama.cpp takes a GGUF model's tokens back, and how many copies of its state that needs.

The engine can keep a running state as it was before each of the last tokens of a pass: `n_rs_seq`
copies beside the present one.
"""

from backends.base import Rollback
from backends.files.gguf_header import GgufHeader
from backends.files.gguf_state import keeps_state, state_bytes

_BOUNDED = frozenset({"lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe"})
"""Architectures whose copies were compared with states computed anew, or that run the same code."""

_UNTRIED = frozenset({"bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "qwen4exp"})
"""Architectures for which llama.cpp keeps copies too, with code of their own."""

LONGEST = 7
"""Most copies: with the last token of the text, a pass over 8.

llama.cpp aborts where they take more operations than it plans for by a model's tensors. Of 64
layers, all but one with a state, LFM2 ran with up to 10 copies and aborted with 11; Nemotron-H ran
with 7 and aborted with 8 (llama-cpp-python 0.3.36).
"""

_SHORTEST = 3
"""Copies kept even where they are large: published gains of drafts are largest at 2 to 4 tokens
(models of 9B to 35B parameters). Not measured here."""

_SHARE = 16
"""Weights per byte of copies, beyond the shortest depth. A guess; not measured."""


def rollback_of(architecture: str, *, has_state: bool) -> Rollback:
    """How far contexts of a model can forget their last tokens."""
    if not has_state:
        return Rollback.ANY
    return Rollback.BOUNDED if architecture in _BOUNDED else Rollback.NONE


def refusal(architecture: str) -> str:
    """Why tokens of a model with a running state are not taken back, after the model's name."""
    if architecture in _UNTRIED:
        why = f"which specchat has not tried to take back for the architecture {architecture}"
    else:
        why = f"which llama.cpp cannot take back for the architecture {architecture}"
    return f"keeps a running state, {why}: it cannot forget rejected tokens"


def usual_depth(header: GgufHeader, weight_bytes: int) -> int:
    """Copies of the running state kept beside the present one, where memory is not short."""
    has_state = any(keeps_state(header))
    if rollback_of(header.architecture, has_state=has_state) is not Rollback.BOUNDED:
        return 0
    affordable = weight_bytes // _SHARE // max(state_bytes(header), 1)
    return min(max(affordable, _SHORTEST), LONGEST)


def all_state_bytes(header: GgufHeader, weight_bytes: int) -> int:
    """Bytes of the running state with its usual copies."""
    return (1 + usual_depth(header, weight_bytes)) * state_bytes(header)
