"""Answers of a target with what it computed on the way, on disk, for training to read."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from training.files import Stored, packed, read, write

LIKELY = 64
"""Likeliest next tokens kept after each token: the teacher's distribution, all but its tail."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the target's answer: T tokens, all of which the target has read.

    id: of prompt and draw. temperature: that the answer was sampled at. tokens: (T,) int32. first:
    number of the prompt's. states: (T, S, d) float32, for each token the inputs of the tapped
    layers, if any, and the last normed state. likely: (T, LIKELY) int32, the likeliest next tokens
    after each token, the likeliest first, and logs: (T, LIKELY) float32, their log-probabilities in
    the whole vocabulary at temperature 1; both undefined before first - 1. is_private: whether a
    chat of the user's is in it.
    """

    id: str
    temperature: float
    tokens: NDArray[np.int32]
    first: int
    states: NDArray[np.float32]
    likely: NDArray[np.int32]
    logs: NDArray[np.float32]
    is_private: bool = False


_ABOUT = ("id", "temperature", "first", "is_private")


class SampleCache:
    """A folder of samples, a numbered file each: a killed process leaves whole ones.

    One process may add while others read what was there when they opened it.
    """

    def __init__(self, folder: Path, most_bytes: int = 1 << 40) -> None:
        """Open a folder, which may be empty. most_bytes: that samples may take.

        Raises ModelError: a sample is damaged.
        """
        self.folder, self.most_bytes = folder, most_bytes
        self.tokens = self.n_bytes = 0
        """Of all answers, and of all files."""
        self._paths = dict[str, Path]()
        """By id, in order."""
        for path in sorted(folder.glob("*.npz")):
            about, stored = read(path, "tokens")
            self._count(path, about["id"], len(stored["tokens"]) - about["first"])

    def _count(self, path: Path, name: str, tokens: int) -> None:
        self._paths[name] = path
        self.n_bytes += path.stat().st_size
        self.tokens += tokens

    def add(self, sample: Sample) -> bool:
        """Add a sample, whole or not at all; False if there is no room for it.

        Raises:
            ModelError: its states are not finite.
            DiskFullError: it cannot be written.
        """
        if not np.isfinite(sample.states).all():
            raise ModelError("the model cannot be learnt from", "its states are not finite")
        length = len(sample.tokens)
        assert len(sample.states) == length
        assert sample.likely.shape == sample.logs.shape == (length, LIKELY)
        shown = slice(sample.first - 1, None)
        arrays: Stored = {
            "tokens": sample.tokens.astype(np.int32),
            "states": _rounded(sample.states),
            "likely": sample.likely[shown].astype(np.int32),
            "logs": sample.logs[shown].astype(np.float16),
        }
        data = packed({name: getattr(sample, name) for name in _ABOUT}, arrays)
        if self.n_bytes + len(data) > self.most_bytes:
            return False
        path = self.folder / f"{len(self):08}.npz"
        write(path, data)
        self._count(path, sample.id, length - sample.first)
        return True

    def __len__(self) -> int:
        return len(self._paths)

    def sample(self, number: int) -> Sample:
        """Read one. Raises ModelError: its file is gone or damaged."""
        about, stored = read(list(self._paths.values())[number])
        tokens, shown = stored["tokens"], slice(about["first"] - 1, None)
        likely = np.zeros((len(tokens), LIKELY), np.int32)
        logs = np.zeros((len(tokens), LIKELY), np.float32)
        likely[shown], logs[shown] = stored["likely"], stored["logs"]
        states = (stored["states"].astype(np.uint32) << 16).view(np.float32)
        return Sample(**about, tokens=tokens, states=states, likely=likely, logs=logs)

    @property
    def done(self) -> Set[str]:
        """Ids of the samples that are in."""
        return self._paths.keys()


def _rounded(states: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bits as bfloat16, to the nearest, to even at half: half floats would overflow (outliers)."""
    bits = np.ascontiguousarray(states, "<f4").view("<u4")
    return cast("NDArray[np.uint16]", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2"))
