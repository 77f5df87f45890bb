"""Assistants of Gemma 4, which attend to the model's own cache.

llama_model_gemma4_assistant and the sharing of caches in llama_model of llama-cpp-python 0.3.36: a
window layer reads the cache of the model's last but one layer, a full layer that of the last.
"""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import (
    Reasons,
    by_layer,
    head_sizes,
    prediction_layers,
    width,
)

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
