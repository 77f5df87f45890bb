"""Recipe of a self-drafter: fewer bits, layers or active experts than its target; its size."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from backends.base import DraftUnavailableError, ModelInfo, UsageError
from backends.files.gguf_header import GgufHeader, Tensor, read_header, read_model
from backends.files.mlx_folder import WEIGHT_FILES, stored_tensors

FILE_BITS = {
    "q2_k": 3.2, "q3_k_s": 3.7, "q3_k_m": 4.0, "q4_0": 4.5, "q4_1": 5.0, "q4_k_s": 4.6,
    "q4_k_m": 4.9, "q5_0": 5.5, "q5_1": 6.0, "q5_k_m": 5.7, "q6_k": 6.6, "q8_0": 8.5,
}  # fmt: skip
"""Bits per weight with scales, by quantization: Llama 3 8B, from llama.cpp's list."""

Skipped = tuple[int, ...]
"""Layers to skip, counted from 0, ascending."""

QUANTIZATIONS = tuple(FILE_BITS)

_LONGEST = 100
"""Most characters for layers in a file name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Changes to a target. quantization: None for the target's; skipped layers count from 0.

    experts: experts used per token, None for the target's number.
    """

    quantization: str | None = None
    skipped_layers: tuple[int, ...] = ()
    experts: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse parts joined by '+', such as q4_0, skip=12-17, q4_0+skip=3 or experts=1.

        Raises:
            UsageError: a part is no known quantization, range of layers or number of experts.
        """
        quantization: str | None = None
        experts: int | None = None
        skipped: set[int] = set()
        for part in text.lower().split("+"):
            layers = re.fullmatch(r"skip=(\d{1,4})(?:-(\d{1,4}))?", part)
            if layers:
                first, last = int(layers[1]), int(layers[2] or layers[1])
                if last < first:
                    raise UsageError(f"self:{text} skips no layer", f"{last} comes before {first}")
                skipped.update(range(first, last + 1))
            elif part in QUANTIZATIONS and quantization is None:
                quantization = part
            elif (fewer := re.fullmatch(r"experts=(\d{1,4})", part)) and experts is None:
                experts = int(fewer[1])
            elif part in QUANTIZATIONS or fewer:
                twice = "quantizations" if part in QUANTIZATIONS else "numbers of experts"
                raise UsageError(f"self:{text} contradicts itself", f"it has two {twice}")
            else:
                raise UsageError(
                    f"self:{text} names no way to make a drafter",
                    f"{part!r} is none of skip=FIRST-LAST, experts=N, {', '.join(QUANTIZATIONS)}",
                    "Example: self:q4_0+skip=12-17",
                )
        return cls(quantization, tuple(sorted(skipped)), experts)

    @property
    def body(self) -> Self:
        return replace(self, skipped_layers=())

    @property
    def of_weights(self) -> Self:
        """Part of the recipe that changes weights: all but experts, which are set on loading."""
        return replace(self, experts=None)

    @property
    def variant(self) -> str:
        """Part of the recipe outside the weights, "" if there is none."""
        return f"experts{self.experts}" if self.experts else ""

    @property
    def bits(self) -> int | None:
        """Nominal bits per weight, None for the target's own."""
        return int(self.quantization[1]) if self.quantization else None

    @property
    def text(self) -> str:
        spans = [f"{first}-{last}" if first < last else f"{first}" for first, last in self._runs]
        experts = f"experts={self.experts}" if self.experts else None
        parts = [self.quantization, *(f"skip={span}" for span in spans), experts]
        return "+".join(filter(None, parts))

    @property
    def slug(self) -> str:
        """Unique name that fits in a file name."""
        layers = "".join(f"skip{first}to{last}" for first, last in self._runs)
        if len(layers) > _LONGEST:
            digest = hashlib.sha256(layers.encode()).hexdigest()[:16]
            layers = f"skip{len(self.skipped_layers)}layers{digest}"
        return "-".join(filter(None, [self.quantization, layers, self.variant]))

    @property
    def _runs(self) -> list[tuple[int, int]]:
        return runs(self.skipped_layers)

    def check(self, name: str, n_layers: int, active_experts: int | None = None) -> None:
        """Refuse layers and experts that a model does not have.

        active_experts: experts the model uses per token, None if not known yet.

        Raises:
            UsageError: a skipped layer is out of range, no layer would be left, or the number of
                experts is not below the model's.
        """
        if self.skipped_layers and self.skipped_layers[-1] >= n_layers:
            raise UsageError(
                f"layer {self.skipped_layers[-1]} cannot be skipped",
                f"{name} has layers 0 to {n_layers - 1}",
            )
        if len(self.skipped_layers) == n_layers:
            raise UsageError("every layer would be skipped", "", "Leave some to draft with.")
        if self.experts is None or active_experts is None:
            return
        if not 0 < self.experts < active_experts:
            has = f"it uses {active_experts} per token" if active_experts else "it has none"
            raise UsageError(f"{name} cannot use {self.experts} experts per token", has)


def runs(layers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last layer of each run of consecutive layers."""
    firsts = [layer for layer in layers if layer - 1 not in layers]
    lasts = [layer for layer in layers if layer + 1 not in layers]
    return list(zip(firsts, lasts, strict=True))


# Layers that can be cut from a GGUF file without changing the remaining layers.
#
# llama.cpp renumbers the remaining layers, and derives from their numbers which have a sliding
# window, no positions, or experts. Each architecture's rules are from llama.cpp's source
# (src/models, in llama-cpp-python 0.3.36); architectures not listed here are refused.

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
    """Whether require_cut accepts it."""
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


_LAYER = re.compile(r"(?:^blk|\blayers)\.(\d+)\.")
_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"

_K_ROW = 256
"""Numbers of a block in formats whose name has a k: other rows take the next larger format."""

_NARROW_BITS = {
    "q2_k": 4.5, "q3_k_s": 4.5, "q3_k_m": 4.9, "q4_k_s": 5.6, "q4_k_m": 5.9, "q5_k_m": 6.4,
    "q6_k": 8.5,
}  # fmt: skip
"""Bits per weight of matrices with such rows, by quantization: tensor_type_fallback of llama.cpp's
src/llama-quant.cpp, with a seventh of the weights in a larger format where formats are mixed."""

_OUTPUT_BITS, _NARROW_OUTPUT_BITS = 6.5625, 8.5
"""Of the matrix that gives the logits, and may be the embedding: q6_k, or else q8_0."""


def weights_made(target: Path, recipe: Recipe) -> int:
    """Approximate bytes of weights in the file that a recipe makes from a GGUF model."""
    tensors = read_model(target)[1]
    names = {tensor.name for tensor in tensors}
    output = _OUTPUT if _OUTPUT in names else _EMBEDDING
    return round(
        sum(
            _bytes(tensor, recipe.quantization, is_output=tensor.name == output)
            for tensor in tensors
            if _layer(tensor.name) not in recipe.skipped_layers
        )
    )


def kept_share(target: Path, skipped: Sequence[int]) -> float:
    """Share of a model's bytes that are left without some layers, from 0 to 1."""
    if not skipped:
        return 1.0
    sizes = list(_sizes(target))
    kept = sum(size for name, size in sizes if _layer(name) not in skipped)
    return kept / max(sum(size for _, size in sizes), 1)


def _sizes(target: Path) -> Iterable[tuple[str, int]]:
    if target.is_dir():
        for file in sorted(target.glob(WEIGHT_FILES)):
            for name, stored in stored_tensors(file).items():
                yield name, stored.bytes
        return
    for tensor in read_model(target)[1]:
        yield tensor.name, tensor.stored_bytes


def _layer(name: str) -> int | None:
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def _bytes(tensor: Tensor, quantization: str | None, *, is_output: bool) -> float:
    if quantization is None or not _is_quantized(tensor):
        return tensor.stored_bytes
    is_narrow = tensor.shape[0] % _K_ROW != 0
    bits = FILE_BITS[quantization]
    if is_output:
        bits = max(bits, _NARROW_OUTPUT_BITS if is_narrow else _OUTPUT_BITS)
    elif is_narrow:
        bits = _NARROW_BITS.get(quantization, bits)
    return tensor.parameters * bits / 8


def _is_quantized(tensor: Tensor) -> bool:
    """Whether llama.cpp quantizes a tensor: matrices, but for routers."""
    is_matrix = sum(extent > 1 for extent in tensor.shape) > 1
    return is_matrix and tensor.name.endswith(".weight") and "ffn_gate_inp" not in tensor.name
