"""What running a model takes of memory, before it is loaded."""

from dataclasses import dataclass
from enum import StrEnum

from models.byte_sizes import gigabytes
from models.metadata.model_facts import ModelFacts

CHUNK = 256
"""The most tokens a pass takes, in any backend."""

_LOGIT_ROWS = 64
"""The most rows of logits kept of a pass."""

_HALF, _FLOAT = 2, 4
_TIGHT = 0.9


class Fit(StrEnum):
    """Whether a bill can be paid: tight is more than nine tenths of what is free."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_BIG = "too big"


@dataclass(frozen=True, slots=True)
class MemoryBill:
    """Bytes by purpose."""

    weights: int
    cache: int
    compute: int
    drafter: int = 0
    """Weights, cache and compute buffer of a drafter together."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.compute + self.drafter

    @property
    def words(self) -> str:
        """The bill in words."""
        parts = {
            "weights": self.weights,
            "context": self.cache,
            "working memory": self.compute,
            "drafter": self.drafter,
        }
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items() if size)


def bill(facts: ModelFacts, n_ctx: int, drafter: MemoryBill | None = None) -> MemoryBill:
    """The bill of a model at a context of n_ctx tokens, with a drafter's where one is given."""
    return MemoryBill(
        weights=facts.weight_bytes,
        cache=facts.attention.cache_bytes(n_ctx),
        compute=compute_bytes(facts, n_ctx),
        drafter=drafter.total if drafter else 0,
    )


def compute_bytes(facts: ModelFacts, n_ctx: int) -> int:
    """A bound on llama.cpp's compute buffer.

    Logits of the rows kept, what a pass holds of each of its tokens (three of the feed-forward
    layer's rows and four of the model's width), and the attention mask in half floats. llama.cpp
    lets these share memory: it reported 0.48 to 0.92 of the bound for the bundled 135M model and
    for that one padded to 1B and 3B, passes of 64, 256 and 512 tokens, contexts of 512, 2,048
    and 8,192 (llama-cpp-python 0.3.36, processor alone).
    """
    chunk = min(CHUNK, n_ctx)
    logits = _FLOAT * facts.n_vocab * min(_LOGIT_ROWS, chunk)
    rows = _FLOAT * chunk * (3 * facts.feed_forward + 4 * facts.width)
    mask = _HALF * chunk * n_ctx
    return logits + rows + mask


def fit(needed: int, free: int) -> Fit:
    """Whether needed bytes go into free ones."""
    if needed > free:
        return Fit.TOO_BIG
    return Fit.TIGHT if needed > _TIGHT * free else Fit.FITS
