"""Which layers can be cut out of a GGUF file, so that those left do what they did before.

llama.cpp numbers the layers that are left anew, and finds by number which of them look back over a
window, leave positions out or have experts. What each architecture does by number was read in
llama.cpp's source (src/models, as llama-cpp-python 0.3.36 has it); one that is not listed here is
refused.
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
"""All their layers are of one kind, but for leading ones without experts, which files tell."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Every period-th layer is of another kind, and so is the model with as many layers as that.

    odd_counts: numbers of layers by which llama.cpp takes a model for one that scales its attention
    otherwise.
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
    """Refuse to cut layers of a file where those left would not do what they did before.

    Raises:
        DraftUnavailableError: so it is, or it is not known of this architecture.
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
    """Why none can be cut, in words; "" where some can."""
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
        return f"its file lists {name} for each layer, which cutting would leave as it is"
    if header.integer(_OWN_LAYERS):
        return "it has layers of another kind after the last"
    pattern = _PATTERNS.get(architecture)
    if pattern and count in pattern.odd_counts:
        return "llama.cpp knows it by its number of layers, and would run fewer otherwise"
    return ""


def _moved(header: GgufHeader, n_layers: int, skipped: Sequence[int]) -> str:
    """Which layer would be another than it was, in words; "" for none."""
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
        return f"with {len(kept)} layers llama.cpp would take it for another model"
    for new, old in enumerate(kept):
        if (old - new) % period:
            return (
                f"one of {period} layers is of another kind, in a fixed order, and layer {old} "
                f"would be in the place of layer {new}: {period} in a row, or the last can be cut"
            )
    return ""
