"""The contract of a backend: a loaded model, and contexts that run it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backends.base.device_sampling import DeviceSampling
from backends.base.errors import UsageError
from backends.base.tokenizer import Tokenizer

Logits = NDArray[np.float32]
"""Rows of raw scores, shape (positions, n_vocab)."""

CacheState = NDArray[np.uint8]
"""A copy of a context's cache in the engine's own format, shape (bytes,)."""


class Rollback(StrEnum):
    """How far a model's context can forget its last tokens."""

    ANY = "any"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of loaded weights. Sizes are in bytes."""

    path: Path
    name: str
    architecture: str
    quantization: str
    parameters: int
    weight_bytes: int
    bytes_read_per_token: int
    """Weights one plain token must read: no input embedding table, active experts only."""
    n_vocab: int
    n_layers: int
    context_limit: int
    is_moe: bool
    rollback: Rollback
    backend: str
    engine: str
    """The build that runs it: another one may take other times."""
    device: str
    threads: int
    rollback_refusal: str = "keeps a running state, which cannot forget rejected tokens"
    """Why rollback is NONE where it is, in words after the model's name."""
    variant: str = ""
    """How it was made from the weights at path, in memory; "" for those weights themselves."""
    active_experts: int = 0
    """How many a token is sent to, 0 in a model without experts."""

    def check_context(self, n_ctx: int) -> None:
        """Refuse a context that the model was not trained for.

        Raises:
            UsageError: there are no such contexts of it.
        """
        check_context(self.name, n_ctx, self.context_limit)


def check_context(name: str, n_ctx: int, limit: int) -> None:
    """Refuse a context that the model of this name, trained for limit tokens, does not have.

    Raises:
        UsageError: there are no such contexts of it.
    """
    if not 0 < n_ctx <= limit:
        raise UsageError(
            f"a context of {n_ctx:,} tokens is out of range",
            f"{name} was trained for at most {limit:,}",
            f"Use --ctx with 1 to {limit}.",
        )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What can be had of a model without its weights."""

    tokenizer: Tokenizer
    rollback: Rollback


class ContextFacts(Protocol):
    """What is known of a context without running it."""

    @property
    def n_ctx(self) -> int:
        """The most tokens it can hold."""
        ...

    @property
    def n_chunk(self) -> int:
        """The most tokens one forward takes; prefill goes in pieces of this size."""
        ...

    @property
    def max_logits(self) -> int:
        """The most rows of logits one forward returns."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens whose keys and values are held, oldest first. Not to be changed."""
        ...

    @property
    def length(self) -> int: ...
    @property
    def can_roll_back(self) -> bool:
        """Whether truncate works at any length; where not, only to 0 or to where it stands."""
        ...

    @property
    def can_verify_tree(self) -> bool:
        """Whether forward_tree works."""
        ...

    @property
    def tree_refusal(self) -> str:
        """Why it does not, in words after the model's name; "" where it does."""
        ...

    @property
    def max_branches(self) -> int:
        """The most leaves of a tree."""
        ...

    @property
    def kv_bytes_per_token(self) -> int: ...


class Context(ContextFacts, Protocol):
    """One sequence of tokens and its KV cache. Who runs it owns it: nobody else may meanwhile."""

    @property
    def device_sampling(self) -> DeviceSampling | None:
        """Drawing and judging tokens where the logits are; None where they are brought over."""
        ...

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        """Append tokens and return the logits of the last n_logits, shape (n_logits, n_vocab).

        The rows are a view that the next call overwrites.

        Raises:
            ModelError: the engine failed; the context is as it was before.
        """
        ...

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """The logits after each node of a tree of tokens, shape (nodes, n_vocab).

        parents: of each node the index of the node before it, an earlier one; -1 for the end of the
        context. At most max_logits nodes with max_branches leaves, and no more than there is room
        for. The context holds none of them until commit says which stay; any other call than that
        and grow_tree drops them all. The rows are a view that the next call overwrites.

        Raises:
            ModelError: the tree is past a limit or the engine failed; the context is as it was
                before.
        """
        ...

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Add nodes to the tree that waits for commit; the logits after them, (new, n_vocab).

        What was run before is not run again, and its rows are no longer valid. parents: of each new
        node the index of one before it among all nodes of the tree, those of before first; -1 for
        the end of the context. The limits of forward_tree hold: max_logits for the new nodes,
        max_branches and room for the whole tree.

        Raises:
            ModelError: the tree grew past a limit or the engine failed; the tree is dropped and the
                context is as it was before it.
        """
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep these nodes of the tree that was run as the next tokens, and drop the others.

        path: indices from a child of the context's end downwards, without a gap; empty for none.
        """
        ...

    def truncate(self, length: int) -> None:
        """Keep the first length tokens.

        Raises:
            ModelError: it holds fewer, or length is negative.
            RollbackRefusedError: this kind of model cannot forget just these.
        """
        ...

    def save(self) -> CacheState:
        """A copy of the cache, by which restore holds the same tokens again.

        Raises:
            ModelError: the engine failed, or there is no memory for the copy.
        """
        ...

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        """Hold tokens as when save gave state; what was held before is forgotten.

        Only what save gave, byte for byte, of a context of the same size of the same model on the
        same build and device: engines may end the process over anything else.

        Raises:
            ModelError: the engine refused it; the context is empty.
        """
        ...

    def close(self) -> None: ...


class Model(Protocol):
    """Loaded weights."""

    @property
    def info(self) -> ModelInfo: ...
    @property
    def tokenizer(self) -> Tokenizer: ...

    def open(self, n_ctx: int) -> Context:
        """A fresh context of n_ctx tokens.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
        """
        ...

    def close(self) -> None:
        """Free the weights and every context still open."""
        ...
