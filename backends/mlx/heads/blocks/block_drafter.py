"""Rows of a block's tokens from its states: DFlash's, DSpark's and DFlash2's."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from backends.files.head_folders.block_layout import BlockLayout
from backends.mlx.heads.blocks.block_layers import BlockBackbone
from backends.mlx.heads.borrowed_layers import Apply, embedding_of, output_of
from backends.mlx.heads.head_weights import over_all_tokens


class MarkovHead(nn.Module):
    """Scores of a token after another (DSpark's vanilla head), as a product of two matrices."""

    def __init__(self, layout: BlockLayout) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(layout.n_vocab, layout.markov_rank)
        self.markov_w2 = nn.Linear(layout.markov_rank, layout.n_drafted, bias=False)

    def __call__(self, before: mx.array) -> mx.array:
        return self.markov_w2(self.markov_w1(before))


class CandidateSelector(nn.Module):
    """Scores of pairs of neighbouring candidates (DFlash2)."""

    def __init__(self, rank: int, width: int, n_vocab: int) -> None:
        super().__init__()
        self.hidden_projection = nn.Linear(width, rank, bias=False)
        self.predecessor_codebook = nn.Embedding(n_vocab, rank)
        self.successor_codebook = nn.Embedding(n_vocab, rank)


class BlockDrafter(BlockBackbone):
    """A head of blocks with what makes rows of its states."""

    def __init__(
        self, layout: BlockLayout, drafted: NDArray[np.int64] | None, target: nn.Module
    ) -> None:
        """drafted: the model's token of each of the head's. target: lends what the head lacks.

        Raises:
            DraftUnavailableError: the model has no such layers to lend.
        """
        super().__init__(layout)
        self._layout = layout
        self._drafted = drafted
        if layout.has_embeddings:
            self.embed_tokens = nn.Embedding(layout.n_vocab, layout.width)
        if layout.has_output:
            self.lm_head = nn.Linear(layout.width, layout.n_drafted, bias=False)
        if layout.markov_rank:
            self.markov_head = MarkovHead(layout)
        if layout.selector is not None:
            rank = layout.selector.rank
            self.candidate_selector = CandidateSelector(rank, layout.width, layout.n_vocab)
        self._lent_embedding: Apply | None = None if layout.has_embeddings else embedding_of(target)
        is_lent = not layout.has_output and not layout.ties_output
        self._lent_output: Apply | None = output_of(target) if is_lent else None

    def embedded(self, tokens: mx.array) -> mx.array:
        """Embeddings of tokens, (n, width)."""
        embedding = self._lent_embedding or self.embed_tokens
        return self._layout.embedding_scale * embedding(tokens)

    def logits(self, states: mx.array) -> mx.array:
        """Float32 logits of states, (n, n_vocab)."""
        layout = self._layout
        rows = self._output(states).astype(mx.float32) * layout.logit_scale
        if layout.softcap:
            rows = layout.softcap * mx.tanh(rows / layout.softcap)
        return over_all_tokens(rows, self._drafted, layout.n_vocab, -mx.inf)

    def chained(self, states: mx.array, before: int) -> mx.array:
        """Rows each after the likeliest token of the one before it, (n, n_vocab); DSpark.

        before: token before the first place.
        """
        base, token = self.logits(states), mx.array([before])
        rows: list[mx.array] = []
        for place in range(len(states)):
            bias = over_all_tokens(
                self.markov_head(token), self._drafted, self._layout.n_vocab, 0.0
            )
            rows.append(base[place : place + 1] + bias)
            token = mx.argmax(rows[-1], axis=-1)
        return mx.concatenate(rows)

    def lattice(self, states: mx.array, before: int) -> mx.array:
        """Candidates of each place and scores of pairs, for in_lattice; DFlash2.

        before: token before the first place. A row has the ids of its candidates and then, for each
        candidate of the place before, their scores.
        """
        selector, parts = self._layout.selector, self.candidate_selector
        assert selector is not None, "it has one"
        count, candidates = len(states), selector.candidates
        logits = self.logits(states)
        ids = mx.argpartition(-logits, candidates - 1, axis=-1)[:, :candidates]
        unary = mx.take_along_axis(logits, ids, axis=-1)
        gates = parts.hidden_projection(states)[:, None]
        successors = parts.successor_codebook(ids).swapaxes(-1, -2)
        anchors = mx.full((1, candidates), before, dtype=ids.dtype)
        earlier = mx.concatenate([anchors, ids[:-1]])
        pairs = (parts.predecessor_codebook(earlier) * gates) @ successors
        scores = pairs.astype(mx.float32) + unary[:, None]
        return mx.concatenate([ids.astype(mx.float32), scores.reshape(count, -1)], axis=-1)

    def _output(self, states: mx.array) -> mx.array:
        if self._lent_output is not None:
            return self._lent_output(states)
        if self._layout.has_output:
            return self.lm_head(states)
        return self.embed_tokens.as_linear(states)
