"""Output layer that knows the tokens of the likeliest clusters alone.

Gemma4AssistantMaskedEmbedder of transformers 5 (models/gemma4_assistant), of the assistants of the
smallest Gemma 4 models.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

import mlx.core as mx
from mlx import nn


class ClusteredOutput(nn.Module):
    """Chooses clusters by the scores of their centroids, and scores the tokens in them.

    Names of weights are those of the published ones.
    """

    def __init__(self, width: int, n_vocab: int, clusters: int, active: int) -> None:
        """clusters: of equal size. active: those whose tokens get a score."""
        super().__init__()
        self.centroids = nn.Linear(width, clusters, bias=False)
        self.token_ordering = mx.zeros((n_vocab,), dtype=mx.int32)
        self._active = active
        self._clusters = clusters

    def __call__(self, states: mx.array, table: nn.Embedding) -> mx.array:
        """Logits, (n, n_vocab), of states, (n, width); -inf outside of the chosen clusters.

        table: rows by token. The reference gives the others a score below all of the chosen ones
        instead, which a drafter would sample from.
        """
        scores = self.centroids(states)
        chosen = mx.argpartition(scores, -self._active, axis=-1)[:, -self._active :]
        ids = self.token_ordering.reshape(self._clusters, -1)[chosen].flatten(1)
        logits = (table(ids) @ states[:, :, None])[:, :, 0]
        unknown = mx.full((states.shape[0], self.token_ordering.size), -mx.inf, dtype=logits.dtype)
        return mx.put_along_axis(unknown, ids, logits, axis=-1)

    @property
    def is_sound(self) -> bool:
        """Whether the clusters hold each token once, which passes do not check."""
        ordered = mx.sort(self.token_ordering)
        return mx.array_equal(ordered, mx.arange(ordered.size, dtype=ordered.dtype)).item() is True
