"""The layers of a head that drafts token by token, as its context runs them."""

from typing import Any, Protocol

import mlx.core as mx


class ChainModule(Protocol):
    """Predicts the token after a token, from it and the state of the position before it."""

    def make_cache(self) -> list[Any]:
        """Empty caches of mlx-lm, one per layer, from which tokens can be trimmed."""
        ...

    def encode(self, rows: mx.array) -> mx.array:
        """States as the layers read them, (n, width), from the model's, float32 of (n, inputs).

        EAGLE-3 fuses the inputs of several of the model's layers; MTP reads them as they are. The
        result has the type of the weights.
        """
        ...

    def __call__(
        self, tokens: mx.array, rows: mx.array, cache: list[Any]
    ) -> tuple[mx.array, mx.array]:
        """Append tokens, shape (n,), to the caches; all is lazy.

        rows: the state before each token, (n, width): encoded, or what an earlier pass left.
        Returns the logits after each token over the vocabulary of the model, (n, n_vocab), which
        are -inf where the head does not know a token, and the head's own states, (n, width).
        """
        ...
