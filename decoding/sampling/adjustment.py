"""Changes to a row of logits before it is truncated: logit bias and penalties.

Order: bias, repetition penalty, presence and frequency penalties, as in llama.cpp and mlx-lm.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from decoding.sampling.sampling_settings import SamplingSettings

PENALTY_WINDOW = 64
"""Number of last tokens that the repetition penalty considers."""

_BAN = -100.0
"""Bias that bans a token: adding it would leave the token a chance where no other has one."""


def adjusted(
    logits: NDArray[np.float32],
    settings: SamplingSettings,
    recent: Sequence[int],
    replied: Sequence[int],
) -> NDArray[np.float32]:
    """A changed copy of logits of shape (n_vocab,); tokens beyond them are ignored.

    Where every token that can follow is banned, as a grammar may leave only such, none is.

    recent: tokens before this position, oldest first. replied: those of them that the reply has.
    """
    changed = logits.copy()
    n_vocab = len(logits)
    if settings.logit_bias:
        ids, bias = _bias(settings.logit_bias)
        is_known = ids < n_vocab
        changed[ids[is_known]] += bias[is_known]
        if changed.max() == -np.inf:  # all that could follow are banned
            changed[:] = logits
    if settings.repeat_penalty != 1.0:
        _penalise_repetition(changed, recent[-PENALTY_WINDOW:], settings.repeat_penalty)
    if settings.counts_reply and replied:
        counts = np.bincount(replied)[:n_vocab]
        ids = np.flatnonzero(counts)
        penalty = settings.presence_penalty + settings.frequency_penalty * counts[ids]
        changed[ids] -= penalty.astype(np.float32)
    return changed


@lru_cache(maxsize=8)
def _bias(pairs: tuple[tuple[int, float], ...]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens and what is added to their logits; of equal tokens the last one counts."""
    by_token = {token: -np.inf if bias <= _BAN else bias for token, bias in pairs}
    ids, values = list(by_token), list(by_token.values())
    return np.array(ids, dtype=np.int64), np.array(values, dtype=np.float32)


def _penalise_repetition(
    logits: NDArray[np.float32], tokens: Sequence[int], penalty: float
) -> None:
    """The repetition penalty of CTRL (Keskar et al., 2019), section 4.1, in place."""
    known = {token for token in tokens if token < len(logits)}
    ids = np.fromiter(known, dtype=np.int64)
    values = logits[ids]
    logits[ids] = np.where(values > 0, values / penalty, values * penalty)
