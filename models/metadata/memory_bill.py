"""Memory needed to run a model, estimated before loading."""

from dataclasses import dataclass
from enum import StrEnum

from models.byte_sizes import gigabytes
from models.metadata.model_facts import ModelFacts

CHUNK = 256
"""Most tokens of a pass, in any backend, of a model in memory."""

_LOGIT_ROWS = 64
"""Most rows of logits kept from a pass."""

_HALF, _FLOAT = 2, 4
_TIGHT = 0.9


class Fit(StrEnum):
    """Whether a bill fits into free memory; tight: over nine tenths of it.

    streams: too big, but it can be read from disk in every pass.
    """

    FITS = "fits"
    TIGHT = "tight"
    TOO_BIG = "too big"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class MemoryBill:
    """Bytes by purpose."""

    weights: int
    cache: int
    compute: int
    drafter: int = 0
    """Weights, cache and compute buffer of a drafter."""

    @property
    def total(self) -> int:
        """Sum of all items."""
        return self.weights + self.cache + self.compute + self.drafter

    @property
    def words(self) -> str:
        """Items of the bill in words."""
        parts = {
            "weights": self.weights,
            "context": self.cache,
            "working memory": self.compute,
            "drafter": self.drafter,
        }
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items() if size)


def bill(facts: ModelFacts, n_ctx: int, drafter: MemoryBill | None = None) -> MemoryBill:
    """Bill of a model with a context of n_ctx tokens, plus a drafter's bill."""
    return MemoryBill(
        weights=facts.weight_bytes,
        cache=facts.attention.cache_bytes(n_ctx),
        compute=compute_bytes(facts, n_ctx),
        drafter=drafter.total if drafter else 0,
    )


def compute_bytes(facts: ModelFacts, n_ctx: int, most_tokens: int = CHUNK) -> int:
    """Upper bound of llama.cpp's compute buffer.

    Sums the logits kept, the activations of a pass (per token three feed-forward rows and four of
    the model's width), and the attention mask in half floats. llama.cpp lets these share memory: it
    reported 0.48 to 0.92 of the bound for the bundled 135M model, also padded to 1B and 3B, with
    passes of 64, 256 and 512 tokens and contexts of 512, 2,048 and 8,192 (llama-cpp-python 0.3.36,
    processor only). most_tokens: of a pass.
    """
    chunk = min(most_tokens, n_ctx)
    logits = _FLOAT * facts.n_vocab * min(_LOGIT_ROWS, chunk)
    rows = _FLOAT * chunk * (3 * facts.feed_forward + 4 * facts.width)
    mask = _HALF * chunk * n_ctx
    return logits + rows + mask


def fit(needed: int, free: int) -> Fit:
    """Compare needed and free bytes."""
    if needed > free:
        return Fit.TOO_BIG
    return Fit.TIGHT if needed > _TIGHT * free else Fit.FITS
