"""Log probabilities of the tokens of a pass, from the rows that they were chosen by."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from backends.base import Logits
from decoding.sampling.token_logprob import TokenLogprob


def logprobs(
    rows: Logits, places: Sequence[int], tokens: Iterable[int], count: int
) -> tuple[TokenLogprob, ...]:
    """Log probabilities of tokens, each by the row at its place, and of the count likeliest."""
    return tuple(
        _logprob(rows[place], token, count) for place, token in zip(places, tokens, strict=True)
    )


def _logprob(row: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    logits = row.astype(np.float64)
    highest = logits.max()
    log_mass = highest + math.log(np.exp(logits - highest).sum())
    top = ((one, float(logits[one] - log_mass)) for one in _likeliest(logits, count))
    return TokenLogprob(token, float(logits[token] - log_mass), tuple(top))


def _likeliest(logits: NDArray[np.float64], count: int) -> list[int]:
    """The count likeliest possible tokens, the likeliest first; of equals the lower ids."""
    count = min(count, len(logits))
    if count <= 0:
        return []
    threshold = np.partition(logits, -count)[-count]
    ids = np.flatnonzero((logits >= threshold) & (logits > -np.inf))
    return ids[np.argsort(-logits[ids], kind="stable")[:count]].tolist()
