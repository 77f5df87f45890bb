"""What a chain drafts by its definition: each row from a pass over the whole text, without caches.

Position p has an entry of token p and the state of position p - 1; there is none before the first.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from backends.base import Logits
from backends.heads.hidden_states import Rows


def rows_after(
    chain: Any, text: Sequence[int], states: Rows, guessed: Sequence[int], *, skips_first: bool
) -> Logits:
    """Logits after the text and after each guessed token, shape (1 + guessed, n_vocab).

    states: the model's own, of all tokens of the text but the last.
    """
    before = np.vstack([np.zeros((1, states.shape[1]), np.float32), states])
    encoded = chain.encode(mx.array(before))[int(skips_first) :]
    tokens = list(text)[int(skips_first) :]
    found: list[Logits] = []
    for token in [*guessed, None]:
        logits, own = chain(mx.array(tokens), encoded, chain.make_cache())
        found.append(np.array(logits[-1:].astype(mx.float32)))
        if token is not None:
            tokens.append(token)
            encoded = mx.concatenate([encoded, own[-1:]])
    return np.vstack(found)
