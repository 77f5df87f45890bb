"""Heads that read the last state of a model of llama.cpp, whose embeddings are in its file."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Context, DraftUnavailableError
from backends.files.gguf_header import parts, read_header
from backends.files.head_folders.head_folder import checked_head_folder
from backends.heads.last_state import Embed, LastStateContext, LastStateHead, LastStateNet
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.file_checks import tensor
from backends.llamacpp.heads.opening import add_final_states
from backends.llamacpp.model import LlamaModel


def load_last_state(path: Path, target: LlamaModel, context: LlamaContext) -> "LlamaLastState":
    """Load a head from its folder."""
    folder = checked_head_folder(path, read_header(parts(target.info.path)[0]))
    net, facts = folder.last_state()
    head = LastStateNet(embed=_embeddings(target.info.path), **net)
    if api.llama_model_n_embd_out(target.pointer) != head.width:
        raise _unread(target.info.path, "of another width than its states")
    return LlamaLastState(head, target, context, **facts)


def _embeddings(path: Path) -> Embed:
    """Reads rows of a file's embeddings, which stay on disk."""
    import gguf  # no other drafter needs it

    for part in parts(path):
        table = tensor(read_header(part), "token_embd.weight")
        if table is None:
            continue
        kind, (width, count) = gguf.GGMLQuantizationType(table.ggml_type), table.shape
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = width // block * block_bytes
        stored = np.memmap(part, np.uint8, "r", table.offset, (count, row_bytes))
        try:
            gguf.dequantize(stored[:1], kind)
        except NotImplementedError as error:
            raise _unread(path, kind.name) from error
        return lambda tokens: gguf.dequantize(stored[list(tokens)], kind)
    raise _unread(path, "in no file")


def _unread(path: Path, how: str) -> DraftUnavailableError:
    return DraftUnavailableError(f"a head cannot read {path.name}", f"its embeddings are {how}")


class LlamaLastState(LastStateHead):
    def open_beside(self, context: Context) -> LastStateContext:
        assert isinstance(context, LlamaContext)
        with ExitStack() as resources:
            states = add_final_states(context, self.width, resources)
            opened = self._opened(context, states, resources.pop_all().close)
        context.close_with(opened)
        return opened
