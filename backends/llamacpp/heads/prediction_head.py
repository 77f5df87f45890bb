"""Next-token layers of a model (MTP): DeepSeek-V3 (arXiv 2412.19437), section 2.2."""

from contextlib import ExitStack

from backends.llamacpp.heads.chain_context import ChainContext
from backends.llamacpp.heads.final_states import add_final_states
from backends.llamacpp.heads.head_opening import HeadSource, branches, open_context, opened
from backends.llamacpp.heads.pass_rows import keep_hidden
from backends.llamacpp.llama_context import LlamaContext


def open_prediction(source: HeadSource, target: LlamaContext, resources: ExitStack) -> ChainContext:
    """A context of a model's next-token layers beside one of the model.

    Raises:
        OutOfMemoryError: its cache does not fit in free memory.
    """
    most = branches(target) if source.layers == 1 else 1
    pointer = open_context(source, target, resources, predicts=True, most_branches=most)
    keep_hidden(pointer, only_outputs=True)
    states = add_final_states(target, source.pointer, resources)
    found = opened(source, target, pointer, states, resources)
    return ChainContext(found, width=states.width, max_branches=most, layers=source.layers)
