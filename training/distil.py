"""Distilling a small drafter: it learns what its target finds likely next.

Zhou et al. 2023 (DistillSpec, arXiv 2310.08461). The drafter is a small model of the same
vocabulary, or the target itself with most layers left out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Form
from numpy.typing import NDArray

from backends.base import DraftUnavailableError
from training.arrays import Array, Arrays, Weights
from training.copies import write_copy
from training.llama import (
    EMBEDDING,
    LORA_IN,
    LORA_OUT,
    OUTPUT,
    Layers,
    Rotation,
    Stored,
    causal,
    read_shape,
    read_weights,
)
from training.samples import Sample
from training.settings import TrainSettings
from training.teaching import Taught, missed

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_FACTORS = "rope_freqs.weight"
_FROZEN = (EMBEDDING, OUTPUT, _FACTORS)

_FORM = Form.Q4_0
"""Of a drafter's matrices. A token of 8 layers of the bundled model costs 0.26 of the model's own
in q4_0, 0.35 in q8_0, 0.41 in q4_1, the model's form (one thread, AVX-512)."""

_OTHERS = 2048
"""Tokens scored beside those that are likely anywhere in a batch, so that they stay unlikely."""


class Batch(NamedTuple):
    """Texts, and what follows at N places of their answers.

    tokens: (B, T). scored: (C,), ids of the tokens whose logits are computed. taught: by numbers
    among these. after: (N,), the token that follows. places: (B, T), whether a draft of the depth
    is followed by the answer's own tokens. states: (B, T, width), the target's before each token,
    for heads; width is 0 else.
    """

    tokens: Array
    scored: Array
    taught: Taught
    after: NDArray[np.int32]
    places: NDArray[np.bool_]
    states: Array


def batch_of(
    arrays: Arrays,
    samples: Sequence[Sample],
    n_vocab: int,
    depth: int,
    random: np.random.Generator | None,
    *,
    with_states: bool = False,
) -> Batch:
    length = max(len(sample.tokens) for sample in samples)
    width = samples[0].states.shape[-1] if with_states else 0
    tokens = np.zeros((len(samples), length), np.int64)
    places = np.zeros((len(samples), length), bool)
    states = np.zeros((len(samples), length, width), np.float32)
    rows, weights = list[NDArray[np.int64]](), list[NDArray[np.float64]]()
    for number, sample in enumerate(samples):
        first, last = sample.first - 1, len(sample.tokens) - 1
        tokens[number, : last + 1] = sample.tokens
        places[number, first : max(last - depth + 1, first)] = True
        if with_states:
            states[number, 1 : last + 1] = sample.states[:-1, -1]
        rows.append(number * length + np.arange(first, last))
        weights.append(np.full(last - first, 1.0 / (last - first) / len(samples)))
    likely = np.vstack([sample.likely[sample.first - 1 : -1] for sample in samples])
    logs = np.vstack([sample.logs[sample.first - 1 : -1] for sample in samples])
    drawn = (random or np.random.default_rng(0)).integers(0, n_vocab, _OTHERS)
    after = np.concatenate([sample.tokens[sample.first :] for sample in samples])
    scored = np.unique(np.concatenate([likely.ravel(), after, drawn]))
    taught = Taught(
        arrays.array(np.concatenate(rows)),
        arrays.array(np.searchsorted(scored, likely)),
        arrays.array(np.exp(logs)),
        arrays.array(np.concatenate(weights).astype(np.float32)),
    )
    array = arrays.array
    return Batch(array(tokens), array(scored), taught, after, places, array(states))


def logits(arrays: Arrays, states: Array, output: Array, batch: Batch) -> Array:
    """Of the scored tokens at the taught places, (N, C), from normed states, (B, T, width)."""
    rows = arrays.rows(states.reshape(-1, states.shape[-1]), batch.taught.rows)
    return arrays.product(rows, arrays.rows(output, batch.scored))


def accepted(arrays: Arrays, drafted: Sequence[Array], batch: Batch) -> tuple[float, int]:
    """Tokens of greedy drafts that the answers have, in all, and the number of drafts.

    drafted: logits by position in the draft, (N, C), each at the token that it drafts after. A
    draft that is right so far has the answer's own tokens before, as they were read here.
    """
    depth, scored = len(drafted), arrays.numpy(batch.scored)
    stands, total = batch.places[:, : batch.places.shape[1] - depth + 1], 0
    for position, rows in enumerate(drafted):
        right = np.zeros(batch.places.size, bool)
        right[arrays.numpy(batch.taught.rows)] = (
            scored[arrays.numpy(rows).argmax(-1)] == batch.after
        )
        own = right.reshape(batch.places.shape)[:, position : position + stands.shape[1]]
        stands = stands & own
        total += int(stands.sum())
    return float(total), int(batch.places.sum())


class Distilled:
    """A drafter that learns: changes of low rank (settings.rank, LoRA), or whole matrices."""

    def __init__(self, arrays: Arrays, path: Path, settings: TrainSettings) -> None:
        """Read a drafter's file.

        Raises:
            DraftUnavailableError: its layers are not known here.
        """
        reader = _opened(path)
        self._arrays, self._settings, self._path = arrays, settings, path
        self._shape, self.stored = read_shape(reader), read_weights(reader)
        self._output = OUTPUT if OUTPUT in self.stored else EMBEDDING
        self._fixed = {
            name: arrays.array(one)
            for name, one in self.stored.items()
            if settings.rank or name in _FROZEN
        }

    def first_weights(self) -> Stored:
        """What learns: the layers, and the norm after them."""
        own = {name: one for name, one in self.stored.items() if name not in _FROZEN}
        rank, seed = self._settings.rank, self._settings.seed
        return low_rank(own, rank, seed) if rank else own

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Batch:
        n_vocab, depth = len(self.stored[EMBEDDING]), self._settings.depth
        return batch_of(self._arrays, samples, n_vocab, depth, random)

    def loss(self, weights: Weights, prepared: Batch, progress: float) -> Array:
        rows = self._logits(weights, prepared)
        return missed(self._arrays, rows, prepared.taught, rejected_share(self._settings, progress))

    def accepted(self, weights: Weights, prepared: Batch) -> tuple[float, int]:
        rows = self._logits(weights, prepared)
        return accepted(self._arrays, [rows] * self._settings.depth, prepared)

    @property
    def stored_bytes(self) -> int:
        return sum(one.nbytes for one in self.stored.values())

    def states(self, weights: Weights, tokens: Array) -> Array:
        """Normed states after each token, (B, T, width); tokens: (B, T)."""
        arrays, length = self._arrays, tokens.shape[1]
        rotation = Rotation.of(arrays, self._shape, length, self.stored.get(_FACTORS))
        whole = {**self._fixed, **weights}
        layers = Layers(arrays, self._shape, whole, rotation)
        x, mask = arrays.rows(whole[EMBEDDING], tokens), causal(arrays, length)
        for layer in range(self._shape.layers):
            x = layers.block(x, f"blk.{layer}.", mask)
        return layers.norm(x, "output_norm")

    def write(self, learnt: Stored, path: Path, form: Form = _FORM) -> None:
        """Write the drafter's file; form: of its matrices."""
        write_copy(self._path, path, merged(self.stored, learnt), form)

    def _logits(self, weights: Weights, batch: Batch) -> Array:
        states = self.states(weights, batch.tokens)
        return logits(self._arrays, states, self._fixed[self._output], batch)


def rejected_share(settings: TrainSettings, progress: float) -> float:
    """Share of the loss that is of what sampling would reject: none in the first half."""
    return settings.acceptance if progress >= 0.5 else 0.0


def _opened(path: Path) -> gguf.GGUFReader:
    reader = gguf.GGUFReader(path)
    architecture = cast("str", reader.fields["general.architecture"].contents())
    what = f"{path.name} cannot be distilled"
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise DraftUnavailableError(what, f"it is a {architecture}; those that can: {known}")
    scaling = reader.get_field(f"{architecture}.rope.scaling.type")
    if scaling is not None and scaling.contents() != "none":
        raise DraftUnavailableError(what, f"its positions are scaled by {scaling.contents()}")
    return reader


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
    found = {**weights, **{name: one for name, one in learnt.items() if name in weights}}
    for name, outer in learnt.items():
        if name.endswith(LORA_OUT):
            part = name.removesuffix(LORA_OUT)
            change = np.asarray(outer @ learnt[f"{part}{LORA_IN}"], np.float32)
            found[f"{part}.weight"] = found[f"{part}.weight"] + change
    return found
