"""Checks of draft heads against the models they are to draft for, from the headers alone.

Widths and vocabularies, and what llama.cpp (llama-cpp-python 0.3.36) aborts or hangs on; what else
does not fit, it refuses itself, or a child process shows (backends/engines/proof_process.py).
"""

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, trunk_layers
from backends.files.gguf_header import GgufHeader, parts, read_header, tokens_of
from backends.files.head_folders.head_folder import kind_of
from backends.files.head_folders.stored_head import read_head
from backends.llamacpp.file_checks import (
    Reasons,
    broken_assertion,
    is_whole,
    prediction_layers,
    tensor,
    width,
)

_FLOAT, _INT64 = 0, 27
"""Numbers of types in ggml."""

_VECTOR = re.compile(r"(?:norm(?:_\d)?|layer_output_scale)\.weight$|\.(?:bias|scale)$|_conv_base$")
"""Names of tensors that ggml adds or multiplies by element, which it does with floats alone."""

_KIND, _MASK = "tokenizer.ggml.model", "tokenizer.ggml.mask_token_id"
_KV_HEADS = "attention.head_count_kv"
_PATTERN = "attention.sliding_window_pattern"

_ASSISTED, _ASSISTANT = "gemma4", "gemma4-assistant"
_ROTATES_NOTHING = "nemotron_h_moe"
"""The architecture whose prediction layers rotate nothing."""

TAPPED = frozenset(
    (
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "lfm2", "lfm2moe", "llama",
        "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h",
        "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp",
    )
)  # fmt: skip
"""Architectures whose graphs keep the inputs of layers; others abort (llm_graph_result)."""

_TAPPED_AFTER_LAST = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""Those that keep what leaves the last layer too, as the input of a layer after it."""

_ONE_LAYER = frozenset(
    (
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next",
    )
)  # fmt: skip
"""Architectures that assert a single prediction layer."""

_PREDICTING = _ONE_LAYER | {"hy_v3", "mimo2", "step35"}
"""Architectures whose prediction layers can be run: others have no graph for them (graph_mtp)."""

_EXPERTS = ("ffn_gate_inp",)
_ASSERTED = {
    "bailingmoe3": ("nextn.shared_head_norm",),
    "cohere2moe": _EXPERTS,
    "deepseek2": (*_EXPERTS, "attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_k_b"),
    "deepseek32": _EXPERTS,
    "glm-dsa": _EXPERTS,
    "glm4moe": _EXPERTS,
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down"),
    "nemotron_h_moe": (*_EXPERTS, "nextn.shared_head_norm"),
}
"""Tensors of a prediction layer that the architecture's graph asserts; files may lack them."""


def _vocabulary(head: GgufHeader, target: GgufHeader) -> Reasons:
    own, theirs = (str(header.metadata.get(_KIND, "")) for header in (head, target))
    if own != theirs:
        yield f"its vocabulary is of kind {own[:20]!r}, and the model's of {theirs[:20]!r}"
    if head.n_vocab != target.n_vocab:
        yield f"it has {head.n_vocab:,} tokens, and the model {target.n_vocab:,}"
    embeddings = tensor(head, "token_embd.weight")
    shape = embeddings.shape if embeddings else (0, target.n_vocab)
    if len(shape) != 2 or shape[1] < target.n_vocab:
        yield "its embeddings lack some of the model's tokens"


def _numbers(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Vectors, widths and rotation: the engine aborts or hangs over others."""
    for one in head.tensors:
        if one.ggml_type != _FLOAT and _VECTOR.search(one.name):
            yield f"tensor {one.name[:64]} is not of 32-bit floats"
    is_assistant = head.architecture == _ASSISTANT
    out = head.integer("embedding_length_out")
    if not is_assistant and out not in (0, width(head)):
        yield f"it hands out hidden states of width {out:,}, and its own is {width(head):,}"
    if head.architecture != _ROTATES_NOTHING and head.integer("rope.dimension_count", 1) == 0:
        yield "it rotates 0 numbers of its queries and keys"
    read = out if is_assistant else head.integer("target_hidden_size", width(head))
    if read != width(target):
        yield f"it is for models of width {read:,}, and this one's is {width(target):,}"


def _taps(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the layers that a head reads."""
    if target.architecture not in TAPPED:
        yield f"llama.cpp does not hand out the layers of {target.architecture} models"
    most = trunk_layers(target) - (target.architecture not in _TAPPED_AFTER_LAST)
    for layer in head.integers("target_layers"):
        if not 0 <= layer <= most:
            yield f"it reads layer {layer:,} of a model whose last one to be read is {most:,}"


def _eagle3(head: GgufHeader, target: GgufHeader) -> Reasons:
    yield from _taps(head, target)
    for name in ("token_embd.weight", "output.weight"):
        if tensor(head, name) is None and width(head) != width(target):
            yield f"it has no {name}, and that of the model is of another width"


def _dflash(head: GgufHeader, target: GgufHeader) -> Reasons:
    yield from _taps(head, target)
    if head.integer("block_size") < 2:
        yield "it does not say how many tokens it drafts at once"
    mask = head.metadata.get(_MASK)
    if type(mask) is not int or not 0 <= mask < head.n_vocab:
        yield "it does not say which token stands for those to be drafted"
    if head.integer("hyper_connection.count"):
        yield "its layers are those of DeepSeek V4, which are not supported"


def _assistant(head: GgufHeader, target: GgufHeader) -> Reasons:
    """A window layer reads the cache of the model's last but one layer, a full layer the last."""
    if target.architecture != _ASSISTED:
        yield f"it drafts for Gemma 4, and this model is a {target.architecture}"
        return
    layers, of_model = (min(one.integer("block_count"), 1 << 12) for one in (head, target))
    windows, shared = (target.by_layer(key, of_model) for key in (_PATTERN, _KV_HEADS))
    if of_model < 2 or not windows[-2] or windows[-1]:
        yield "the model's last two layers are not one of a window and one of full attention"
        return
    if len(own := head.integers(_PATTERN)) != layers:
        yield "it does not say which of its layers see a window"
        return
    kept = head.by_layer(_KV_HEADS, layers, head.by_layer("attention.head_count", layers))
    for layer, (count, has_window) in enumerate(zip(kept, own, strict=True)):
        given = shared[-2] if has_window else shared[-1]
        if count != given:
            yield f"its layer {layer} reads {count:,} heads of a cache that has {given:,}"


def _prediction(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Prediction layers of a file for a model, which may be the same file."""
    name, count = head.architecture, prediction_layers(head)
    if name not in _PREDICTING:
        yield f"llama.cpp cannot draft with layers of a {name}"
    if name != target.architecture:
        yield f"it is for a {name}, and this model is a {target.architecture}"
    if count == 0:
        yield "it has no prediction layers"
        return
    if name in _ONE_LAYER and count != 1:
        yield f"it has {count:,} prediction layers, and 1 of a {name} can be run"
    first = trunk_layers(head)
    for layer in range(first, first + min(count, 64)) if is_whole(head) else ():
        if tensor(head, f"blk.{layer}.nextn.eh_proj.weight") is None:
            yield f"its prediction layer {layer} is missing"
        for part in _ASSERTED.get(name, ()):
            if tensor(head, f"blk.{layer}.{part}.weight") is None:
                yield f"its prediction layer {layer} lacks {part}"
    if first != trunk_layers(target):
        yield f"it is for a model of {first:,} layers, not {trunk_layers(target):,}"


def predicts(header: GgufHeader) -> bool:
    """Whether a model has prediction layers of its own that llama.cpp can run."""
    return next(_prediction(header, header), None) is None


def _draftable_tokens(head: GgufHeader, path: Path) -> Reasons:
    """Reasons against the list of tokens that a head drafts; path: its file.

    llama.cpp asserts the list's type and length, and each of its numbers when it scatters logits.
    """
    listed, output = tensor(head, "d2t"), tensor(head, "output.weight")
    if listed is None:
        return
    count = listed.shape[0]
    if listed.ggml_type != _INT64 or listed.parameters != count or listed.stored_bytes < 8 * count:
        yield "its list of tokens is not one of 64-bit integers"
    elif output is None or output.shape[-1] != count:
        yield f"it lists {count:,} tokens and has no output for just these"
    else:
        tokens = np.fromfile(path, "<i8", count, offset=listed.offset)
        if not ((tokens >= 0) & (tokens < head.n_vocab)).all():
            yield f"it drafts tokens that are not among its {head.n_vocab:,}"


def _same_tokens(head: Path, target: Path) -> Reasons:
    """Reasons against a head in whose file a token is another text than in the model's."""
    if head == target:
        return
    pairs = zip(tokens_of(head), tokens_of(target), strict=False)
    for token, (own, theirs) in enumerate(pairs):
        if own != theirs:
            shown = [repr(text[:40].decode("utf-8", errors="replace")) for text in (own, theirs)]
            yield f"its token {token:,} is {shown[0]}, and the model's is {shown[1]}"


_CHECKS: dict[str, Callable[[GgufHeader, GgufHeader], Reasons]] = {
    "eagle3": _eagle3,
    "dflash": _dflash,
    _ASSISTANT: _assistant,
}


def checked_head(path: Path, target: Path) -> GgufHeader:
    """Read the header of a head that llama.cpp can run beside a model.

    path: an EAGLE-3 or DFlash head, an assistant of Gemma 4, or a file with prediction layers,
    which may be the target's own.

    Raises:
        ModelError: a file is missing or damaged, or the two do not belong together.
    """
    refuse_safetensors(path)
    own = parts(path)[0]
    head, model = read_header(own), read_header(parts(target)[0])
    if reason := broken_assertion(head):
        raise ModelError(f"cannot draft with {path}", reason, "Choose another file.")
    reasons = chain(
        _vocabulary(head, model),
        _numbers(head, model),
        _CHECKS.get(head.architecture, _prediction)(head, model),
        _draftable_tokens(head, own),
        _same_tokens(own, parts(target)[0]),
    )
    if reason := next(reasons, ""):
        what = f"{path.name} cannot draft for {target.name}"
        raise ModelError(what, reason, "Choose a head that was made for this model.")
    return head


def unsupported(drafter: TrainedDrafter, architecture: str) -> str:
    """Why llama.cpp cannot draft for an architecture with a drafter; empty if it can."""
    match drafter.kind:
        case TrainedKind.ASSISTANT:
            can, what = architecture == _ASSISTED, "run an assistant beside"
        case TrainedKind.LAST_STATE:
            return ""
        case TrainedKind.NEXT_TOKEN_LAYERS:
            can, what = architecture in _PREDICTING, "run next-token layers of"
        case _:
            can, what = architecture in TAPPED, "hand out what the layers read of"
    return "" if can else f"this version of llama.cpp does not {what} {architecture}"


def refuse_safetensors(path: Path) -> None:
    """Refuse a head in safetensors, which llama.cpp cannot read; any other file passes.

    So does a last-state head, which is run without llama.cpp. path: a folder, or its weight file.

    Raises:
        ModelError: it is such a head.
    """
    if path.suffix != ".safetensors" and not path.is_dir():
        return
    if kind_of(read_head(path if path.is_dir() else path.parent)) is TrainedKind.LAST_STATE:
        return
    why = "llama.cpp reads heads in GGUF, and this is in safetensors"
    remedy = "Choose a head in GGUF, or convert it with convert_hf_to_gguf.py of llama.cpp."
    raise ModelError(f"{path.name} cannot draft", why, remedy)
