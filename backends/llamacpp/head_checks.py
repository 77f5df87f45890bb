"""Checks of draft heads against the models they are to draft for, from the headers alone."""

import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from backends.base import ModelError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.files.gguf_header import GgufHeader, parts, read_header, tokens_of
from backends.files.head_folders.eagle3_layout import LAYER_IDS
from backends.files.head_folders.head_folder import kind_of
from backends.files.head_folders.stored_head import CONFIG, StoredHead, read_head
from backends.llamacpp.file_checks import (
    Reasons,
    broken_assertion,
    by_layer,
    head_sizes,
    is_whole,
    prediction_layers,
    tensor,
    trunk_layers,
    width,
)

_WITHOUT = "nemotron_h_moe"
"""The architecture whose prediction layers rotate nothing."""


def some_rotation(head: GgufHeader) -> Reasons:
    """Reasons against a head that would rotate nothing, over which llama.cpp hangs."""
    if head.architecture != _WITHOUT and head.integer("rope.dimension_count", 1) == 0:
        yield "it rotates 0 numbers of its queries and keys"


_FLOAT = 0
"""Number of the type in ggml."""

_VECTOR = re.compile(r"(?:norm(?:_\d)?|layer_output_scale)\.weight$|\.(?:bias|scale)$|_conv_base$")
"""Names of tensors that ggml adds or multiplies by element, which it does with floats alone."""

_GIVEN_BY_TARGET = "gemma4-assistant"
"""The architecture whose heads hand out hidden states of their model's width."""


def sound_vectors(head: GgufHeader) -> Reasons:
    """Reasons against the types and widths of a head's vectors."""
    for vector in head.tensors:
        if vector.ggml_type != _FLOAT and _VECTOR.search(vector.name):
            yield f"tensor {vector.name[:64]} is not of 32-bit floats"
    out = head.integer("embedding_length_out")
    if head.architecture != _GIVEN_BY_TARGET and out not in (0, width(head)):
        yield f"it hands out hidden states of width {out:,}, and its own is {width(head):,}"


_INT64 = 27
"""Number of the type in ggml."""

_DRAFTABLE = "d2t"
"""The tensor with the model's token for each that a head drafts."""


_KIND = "tokenizer.ggml.model"


def same_kind(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a head with another kind of vocabulary, or number of tokens."""
    own, theirs = (str(header.metadata.get(_KIND, "")) for header in (head, target))
    if own != theirs:
        yield f"its vocabulary is of kind {own[:20]!r}, and the model's of {theirs[:20]!r}"
    if head.n_vocab != target.n_vocab:
        yield f"it has {head.n_vocab:,} tokens, and the model {target.n_vocab:,}"
    own = tensor(head, "token_embd.weight")
    if own is not None and (len(own.shape) != 2 or own.shape[1] < target.n_vocab):
        yield "its embeddings lack some of the model's tokens"


def draftable_tokens(head: GgufHeader, path: Path) -> Reasons:
    """Reasons against the list of tokens that a head drafts; path: its file.

    llama.cpp asserts the list's type and length, and each of its numbers when it scatters logits.
    """
    listed, output = tensor(head, _DRAFTABLE), tensor(head, "output.weight")
    if listed is None:
        return
    count = listed.shape[0]
    if listed.ggml_type != _INT64 or listed.parameters != count:
        yield "its list of tokens is not one of 64-bit integers"
        return
    if output is None or output.shape[-1] != count:
        yield f"it lists {count:,} tokens and has no output for just these"
        return
    if listed.stored_bytes < 8 * count:
        yield "its list of tokens is cut short"
        return
    tokens = np.fromfile(path, "<i8", count, offset=listed.offset)
    if not ((tokens >= 0) & (tokens < head.n_vocab)).all():
        yield f"it drafts tokens that are not among its {head.n_vocab:,}"


def same_tokens(head: Path, target: Path) -> Reasons:
    """Reasons against a head in whose file a token is another text than in the model's."""
    if head == target:
        return
    pairs = zip(tokens_of(head), tokens_of(target), strict=False)
    for token, (own, theirs) in enumerate(pairs):
        if own != theirs:
            yield f"its token {token:,} is {_shown(own)}, and the model's is {_shown(theirs)}"


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", errors="replace"))


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


def tapped_layers(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the layers that a head reads."""
    layers = head.integers("target_layers")
    if not layers:
        yield "it does not say which layers of a model it reads"
    if target.architecture not in TAPPED:
        yield f"llama.cpp does not hand out the layers of {target.architecture} models"
    most = trunk_layers(target) - (target.architecture not in _TAPPED_AFTER_LAST)
    for layer in layers:
        if not 0 <= layer <= most:
            yield f"it reads layer {layer:,} of a model whose last one to be read is {most:,}"


_TAPS = 3


def eagle3_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against an EAGLE-3 head for a model."""
    hidden = head.integer("target_hidden_size")
    if hidden != width(target):
        yield f"it is for models of width {hidden:,}, and this one's is {width(target):,}"
    if len(head.integers("target_layers")) != _TAPS:
        yield f"it does not read {_TAPS} layers"
    yield from tapped_layers(head, target)
    if head.integer("block_count") != 1:
        yield f"it has {head.integer('block_count'):,} layers, and 1 can be run"
    key_size, value_size = head_sizes(head)
    if key_size != value_size:
        yield f"its keys have {key_size:,} numbers and its values {value_size:,}"
    for name in ("token_embd.weight", "output.weight"):
        if tensor(head, name) is None and width(head) != width(target):
            yield f"it has no {name}, and that of the model is of another width"


_MASK = "tokenizer.ggml.mask_token_id"


def dflash_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a DFlash head for a model."""
    if width(head) != width(target):
        yield f"it is for models of width {width(head):,}, and this one's is {width(target):,}"
    yield from tapped_layers(head, target)
    if head.integer("block_size") < 2:
        yield "it does not say how many tokens it drafts at once"
    mask = head.metadata.get(_MASK)
    if type(mask) is not int or not 0 <= mask < head.n_vocab:
        yield "it does not say which token stands for those to be drafted"
    key_size, value_size = head_sizes(head)
    if key_size != value_size:
        yield f"its keys have {key_size:,} numbers and its values {value_size:,}"
    if tensor(head, "selector_hidden.weight") is not None:
        yield from _selector(head)
    if head.integer("hyper_connection.count"):
        yield "its layers are those of DeepSeek V4, which are not supported"


def _selector(head: GgufHeader) -> Reasons:
    """Reasons against what selects among the candidates of each place."""
    count = head.integer("selector_top_k")
    if not 0 < count <= head.n_vocab or count * (count + 1) > width(head):
        yield f"it selects among {count:,} tokens of each place"
    if tensor(head, "markov_w1.weight") is not None:
        yield "it joins its tokens in two ways"


# Assistants of Gemma 4, which attend to the model's own cache.
#
# llama_model_gemma4_assistant and the sharing of caches in llama_model of llama-cpp-python 0.3.36:
# a window layer reads the cache of the model's last but one layer, a full layer that of the last.

ASSISTED = "gemma4"
"""The architecture that assistants draft for."""

_KV_HEADS = "attention.head_count_kv"
_PATTERN = "attention.sliding_window_pattern"
_WINDOW_SIZES = ("attention.key_length_swa", "attention.value_length_swa")


def assistant_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against an assistant for a model."""
    if target.architecture != ASSISTED:
        yield f"it drafts for Gemma 4, and this model is a {target.architecture}"
        return
    hidden = head.integer("embedding_length_out")
    if hidden != width(target):
        yield f"it is for models of width {hidden:,}, and this one's is {width(target):,}"
    layers = head.integer("block_count")
    if prediction_layers(head) != layers:
        yield f"{prediction_layers(head):,} of its {layers:,} layers predict"
    if head_sizes(head) != head_sizes(target) or _window_sizes(head) != _window_sizes(target):
        yield "its heads differ in size from the model's, whose cache it reads"
    yield from _shared_caches(head, target)


def _window_sizes(header: GgufHeader) -> list[int]:
    return [
        header.integer(key, usual)
        for key, usual in zip(_WINDOW_SIZES, head_sizes(header), strict=True)
    ]


def _shared_caches(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the caches that its layers would read."""
    windows = by_layer(target, _PATTERN)
    if len(windows) < 2 or not windows[-2] or windows[-1]:
        yield "the model's last two layers are not one of a window and one of full attention"
        return
    own = by_layer(head, _PATTERN)
    if len(own) != head.integer("block_count"):
        yield "it does not say which of its layers see a window"
        return
    queries = by_layer(head, "attention.head_count")
    kept = by_layer(head, _KV_HEADS) if _has(head, _KV_HEADS) else queries
    shared = by_layer(target, _KV_HEADS)
    for layer, (asking, own_kept, has_window) in enumerate(zip(queries, kept, own, strict=False)):
        given = shared[-2] if has_window else shared[-1]
        if given <= 0 or asking <= 0 or asking % given:
            yield f"the {asking:,} heads of its layer {layer} cannot share {given:,} of the model"
        if own_kept != given:
            yield f"its layer {layer} reads {own_kept:,} heads of a cache that has {given:,}"


def _has(header: GgufHeader, key: str) -> bool:
    return header.integer(key, -1) >= 0 or bool(header.integers(key))


# Layers of a model that predict further tokens, in its own file or in one beside it.
#
# graph_mtp of the architectures in llama-cpp-python 0.3.36; others have no such graph.

_ONE_LAYER = frozenset(
    (
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next",
    )
)  # fmt: skip
"""Architectures that assert a single prediction layer."""

_SEVERAL_LAYERS = frozenset({"hy_v3", "mimo2", "step35"})

PREDICTING = _ONE_LAYER | _SEVERAL_LAYERS
"""Architectures whose prediction layers can be run."""

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


def prediction_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the prediction layers of a file for a model, which may be the same file."""
    name, count = head.architecture, prediction_layers(head)
    if name not in PREDICTING:
        yield f"llama.cpp cannot draft with layers of a {name}"
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
    yield from _same_model(head, target)


def predicts(header: GgufHeader) -> bool:
    """Whether a model has prediction layers of its own that llama.cpp can run."""
    return next(prediction_check(header, header), None) is None


def _same_model(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a file beside the model."""
    if head.architecture != target.architecture:
        yield f"it is for a {head.architecture}, and this model is a {target.architecture}"
    if width(head) != width(target):
        yield f"it is for models of width {width(head):,}, and this one's is {width(target):,}"
    if trunk_layers(head) != trunk_layers(target):
        yield f"it is for a model of {trunk_layers(head):,} layers, not {trunk_layers(target):,}"
    if head_sizes(head) != head_sizes(target):
        yield "its heads differ in size from the model's"


# Heads as they are published for other programs: a folder with safetensors.
#
# What llama.cpp's converter reads of them, and what it leaves out: conversion/llama.py and
# conversion/qwen.py of llama-cpp-python 0.3.36.

_SUFFIX = ".safetensors"
_NESTED = "eagle_config"
_OTHER = "Choose a head in GGUF."

_CONVERTED = {
    TrainedKind.EAGLE3: "an EAGLE-3 head",
    TrainedKind.DFLASH: "a DFlash drafter",
    TrainedKind.DSPARK: "a DSpark drafter",
}
"""Kinds that the converter knows."""


def refuse_safetensors(path: Path) -> None:
    """Refuse a head in safetensors, which llama.cpp cannot read; any other file passes.

    path: a folder, or its weight file.

    Raises:
        ModelError: it is such a head, with what to do about it.
    """
    if path.suffix != _SUFFIX and not path.is_dir():
        return
    head = read_head(path if path.is_dir() else path.parent)
    what, name = f"{path.name} cannot draft", _CONVERTED.get(kind_of(head) or TrainedKind.ASSISTANT)
    if name is None:
        raise ModelError(what, "llama.cpp reads heads in GGUF, and this is none", _OTHER)
    if lost := _lost(head):
        raise ModelError(what, f"llama.cpp's converter leaves out {lost} of this head", _OTHER)
    remedy = "Convert it: convert_hf_to_gguf.py of llama.cpp, with --target-model-dir."
    if _nested(head):
        remedy = (
            f"Move {LAYER_IDS} from {_NESTED} to the top of {CONFIG} with 1 added to each: there "
            f"they are read as inputs of layers, where they were outputs. {remedy}"
        )
    raise ModelError(what, f"it is {name} in safetensors, and llama.cpp reads GGUF", remedy)


def _lost(head: StoredHead) -> str:
    """A part without which a head drafts wrongly, and which the converter does not know."""
    if head.settings.values.get("norm_output"):
        return "a norm (norm_output)"
    if any(name.startswith("fc_norm.") for name in head.tensors):
        return "a norm (fc_norm)"
    return ""


def _nested(head: StoredHead) -> bool:
    """Whether the layers that a head reads are named where the converter does not look."""
    inner = head.settings.values.get(_NESTED)
    return isinstance(inner, dict) and LAYER_IDS in inner and not head.settings.has(LAYER_IDS)


_CHECKS: dict[str, Callable[[GgufHeader, GgufHeader], Reasons]] = {
    "eagle3": eagle3_check,
    "dflash": dflash_check,
    "gemma4-assistant": assistant_check,
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
    check = _CHECKS.get(head.architecture, prediction_check)
    reasons = chain(
        same_kind(head, model),
        sound_vectors(head),
        some_rotation(head),
        check(head, model),
        draftable_tokens(head, own),
        same_tokens(own, parts(target)[0]),
    )
    if reason := next(reasons, ""):
        what = f"{path.name} cannot draft for {target.name}"
        raise ModelError(what, reason, "Choose a head that was made for this model.")
    return head


def unsupported(drafter: TrainedDrafter, architecture: str) -> str:
    """Why llama.cpp cannot draft for an architecture with a drafter; empty if it can."""
    match drafter.kind:
        case TrainedKind.ASSISTANT:
            can, what = architecture == ASSISTED, "run an assistant beside"
        case TrainedKind.NEXT_TOKEN_LAYERS:
            can, what = architecture in PREDICTING, "run next-token layers of"
        case _:
            can, what = architecture in TAPPED, "hand out what the layers read of"
    return "" if can else f"this version of llama.cpp does not {what} {architecture}"
