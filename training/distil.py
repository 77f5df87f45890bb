"""Distilling a small drafter: it learns what its target finds likely next.

Zhou et al. 2023 (DistillSpec, arXiv 2310.08461). The drafter is a small model of the same
vocabulary, or the target itself with most layers left out.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Form

from backends.base import DraftUnavailableError
from training.arrays import Array, Arrays, Weights
from training.files import Stored, write_copy
from training.layer import LORA_IN, LORA_OUT, Layers, Positions
from training.net import Batch, Net
from training.settings import TrainSettings
from training.source import GgufFile

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_FACTORS = "rope_freqs.weight"
_FROZEN = ("token_embd.weight", "output.weight", _FACTORS)


def check_layers(path: Path) -> GgufFile:
    """Raises DraftUnavailableError: its layers are not known here."""
    file, why = GgufFile(path), ""
    scaling = file.fact("rope.scaling.type")
    if file.architecture not in _ARCHITECTURES:
        why = f"it is a {file.architecture}; those that can: {', '.join(_ARCHITECTURES)}"
    elif scaling not in (None, "none"):
        why = f"its positions are scaled by {scaling}"
    if why:
        what = f"{path.name} cannot be distilled"
        raise DraftUnavailableError(what, why, "Name a small model of its vocabulary: --from")
    return file


class Distilled(Net):
    """A drafter that learns: changes of low rank (settings.rank, LoRA), or whole matrices."""

    learnt_positions = 1  # what it learns of the others is the same
    form = Form.Q4_0
    """Of its file's matrices. A token of 8 layers of the bundled model costs 0.26 of the model's
    own in q4_0, 0.35 in q8_0, 0.41 in q4_1, the model's form (one thread, AVX-512)."""

    def __init__(self, arrays: Arrays, path: Path, settings: TrainSettings) -> None:
        """Read a drafter's file. Raises DraftUnavailableError: its layers are not known here."""
        file = check_layers(path)
        super().__init__(arrays, settings, file.source())
        self._stored = file.weights(lambda name: name not in _FROZEN)
        factors = file.weights(lambda name: name == _FACTORS)
        self._factors = factors.get(_FACTORS)
        if settings.rank:
            self.fixed = {name: arrays.array(one) for name, one in self._stored.items()}

    def first_weights(self) -> Stored:
        """What learns: the layers, and the norm after them."""
        rank, seed = self.settings.rank, self.settings.seed
        return low_rank(self._stored, rank, seed) if rank else self._stored

    def states(self, weights: Weights, batch: Batch) -> Iterator[tuple[Array, str]]:
        length = batch.states.shape[1]
        states = self.after(weights, batch.embedded)
        for position in range(self.settings.depth):
            yield states[:, 1 + position : 1 + position + length], "output_norm"

    def after(self, weights: Weights, state: Array) -> Array:
        """States after each token, (B, T, d), from embeddings."""
        whole = {**self.fixed, **weights}
        layers = Layers(self.arrays, self.source.shape, whole, self._factors)
        for number in range(self.source.layers):
            block = f"blk.{number}."
            normed = layers.norm(state, f"{block}attn_norm")
            state = layers.run(block, normed, state, Positions())
        return state

    def _write(self, learnt: Stored, folder: Path) -> None:
        own = self.source.path
        whole = merged(GgufFile(own).weights(), learnt)
        write_copy(own, folder / "distilled.gguf", whole, self.form)


def low_rank(weights: Stored, rank: int, seed: int) -> Stored:
    """Changes of matrices, which are none yet (Hu et al. 2021, arXiv 2106.09685)."""
    random = np.random.default_rng(seed)
    found: Stored = {}
    for name, matrix in weights.items():
        if matrix.ndim == 2:
            part, (outputs, inputs) = name.removesuffix(".weight"), matrix.shape
            inner = random.normal(0.0, inputs**-0.5, (rank, inputs))
            found[f"{part}{LORA_IN}"] = inner.astype(np.float32)
            found[f"{part}{LORA_OUT}"] = np.zeros((outputs, rank), np.float32)
    return found


def merged(weights: Stored, learnt: Stored) -> Stored:
    """Weights with what was learnt in their place, or added to them."""
    found = {**weights, **learnt}
    for name, outer in learnt.items():
        if name.endswith(LORA_OUT):
            part = name.removesuffix(LORA_OUT)
            change = np.asarray(outer @ learnt[f"{part}{LORA_IN}"], np.float32)
            found[f"{part}.weight"] = found[f"{part}.weight"] + change
    return found
