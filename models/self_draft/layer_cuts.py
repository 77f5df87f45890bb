"""Layers that can be cut from a GGUF file without changing the remaining layers.

llama.cpp renumbers the remaining layers, and derives from their numbers which have a sliding
window, no positions, or experts. Each architecture's rules are from llama.cpp's source (src/models,
in llama-cpp-python 0.3.36); architectures not listed here are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.base import DraftUnavailableError, ModelInfo
from backends.files.gguf_header import GgufHeader, read_header

_ALIKE = frozenset({
    "arcee", "arctic", "bailingmoe", "bitnet", "bloom", "chatglm", "codeshell", "command-r", "dbrx",
    "deepseek", "dots1", "ernie4_5", "exaone", "falcon", "gemma", "gpt2", "gptneox", "granite",
    "granitemoe", "grok", "hunyuan-dense", "hunyuan-moe", "internlm2", "jais", "llama", "mistral3",
    "mpt", "nemotron", "olmo", "olmoe", "orion", "phi2", "phi3", "phimoe", "plamo", "plm", "qwen",
    "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "refact", "seed_oss", "stablelm",
    "starcoder", "starcoder2", "xverse",
})  # fmt: skip
"""Architectures with one kind of layer, except leading ones without experts, which files list."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Kinds of layers alternate with a period.

    odd_counts: layer counts by which llama.cpp identifies models with another attention scale.
    """

    period: int
    odd_counts: frozenset[int] = frozenset()


_PATTERNS = {
    "cohere2": _Pattern(4),
    "gemma2": _Pattern(2, frozenset({46})),
    "gemma3": _Pattern(6, frozenset({62})),
    "gpt-oss": _Pattern(2),
    "smollm3": _Pattern(4),
}
_PERIOD = "attention.sliding_window_pattern"
_LEADING = "leading_dense_block_count"
_OWN_LAYERS = "nextn_predict_layers"


def require_cut(info: ModelInfo, skipped: Sequence[int]) -> None:
    """Refuse to cut layers of a file if that would change the remaining layers.

    Raises:
        DraftUnavailableError: it would, or the architecture is unknown.
        ModelError: the file cannot be read.
    """
    if not skipped:
        return
    header = read_header(info.path)
    kinds = _kinds(header)
    if kinds:
        raise DraftUnavailableError(f"{info.name} cannot skip layers", kinds)
    moved = _moved(header, info.n_layers, skipped)
    if moved:
        raise DraftUnavailableError(
            f"{info.name} cannot skip these layers",
            moved,
            "`specchat models tune MODEL` tries those that can be skipped.",
        )


def can_cut(info: ModelInfo, skipped: Sequence[int]) -> bool:
    """Whether require_cut accepts it.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        require_cut(info, skipped)
    except DraftUnavailableError:
        return False
    return True


def _kinds(header: GgufHeader) -> str:
    """Why no layer can be cut, "" if some can."""
    architecture = header.architecture
    if architecture not in _ALIKE and architecture not in _PATTERNS:
        return f"layers of the architecture {architecture} are not known to be alike"
    count = header.integer("block_count")
    listed = (
        key.removeprefix(f"{architecture}.")
        for key, length in header.array_lengths.items()
        if key.startswith(f"{architecture}.") and length == count
    )
    name = next(listed, None)
    if name:
        return f"its file lists {name} for each layer, which cutting would not update"
    if header.integer(_OWN_LAYERS):
        return "it has layers of another kind after the last"
    pattern = _PATTERNS.get(architecture)
    if pattern and count in pattern.odd_counts:
        return "llama.cpp identifies it by its number of layers, and would run fewer differently"
    return ""


def _moved(header: GgufHeader, n_layers: int, skipped: Sequence[int]) -> str:
    """Which remaining layer would change, in words; "" if none would."""
    gone = frozenset(skipped)
    leading = header.integer(_LEADING)
    if leading and min(gone) < leading:
        return f"the first {leading} layers are of another kind than the others"
    pattern = _PATTERNS.get(header.architecture)
    if pattern is None:
        return ""
    period = header.integer(_PERIOD) or pattern.period
    kept = [layer for layer in range(n_layers) if layer not in gone]
    if len(kept) in pattern.odd_counts:
        return f"with {len(kept)} layers llama.cpp would mistake it for another model"
    for new, old in enumerate(kept):
        if (old - new) % period:
            return (
                f"one of {period} layers is of another kind, in a fixed order, and layer {old} "
                f"would be in the place of layer {new}: {period} in a row, or the last can be cut"
            )
    return ""
