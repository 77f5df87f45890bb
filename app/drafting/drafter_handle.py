"""A drafter of a session with its resources, and what it is built in."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from app.learned.ngram_memory import NgramMemory
from app.loading.checked_loader import CheckedLoader
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Context, Model
from backends.engines.backend_selection import AUTO
from decoding.drafters.retrieval.corpus import Corpus
from decoding.planning.managed_drafter import ManagedDrafter
from models.reference import HubReference, Reference, at_hand


@dataclass(frozen=True, slots=True)
class DrafterEnvironment:
    """Environment of drafters: the target, its context, and options for running models."""

    target: Model
    context: TargetContext
    paths: Paths
    threads: int | None
    gpu_layers: int | None
    notify: Callable[[str], None]
    room: int | None = None
    """Memory for drafters in bytes, None if unknown."""
    sequences: int = 1
    """As many replies draft at once as there is room for their contexts."""
    obtain: Callable[[Reference | HubReference], Reference] = at_hand
    """Downloads a missing drafter, or raises with a remedy."""
    backend: str = AUTO
    """The requested backend."""
    every_form: bool = False
    """Whether drafter models also draft trees and paths that are not expected to gain."""
    with_room: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while a child process makes or checks a drafter, which takes memory."""

    @property
    def models(self) -> CheckedLoader:
        return CheckedLoader(self.paths, self.notify, self.with_room)


@dataclass(frozen=True, slots=True)
class DrafterHandle:
    """A drafter of a session with its resources; key: in the acceptance memory.

    model, context: that it runs, if any. compute_bytes: working memory of its passes. corpus: the
    index it reads, if any. learned: n-grams of the model's replies, saved on disk. parts: drafters
    it is composed of. note: its peculiarities, in words. is_head: whether it reads what passes of
    the target leave. is_elsewhere: whether its memory is not that of the target's device.
    """

    key: str
    member: ManagedDrafter
    model: Model | None = None
    kv_bytes: int = 0
    compute_bytes: int = 0
    note: str = ""
    parts: "tuple[DrafterHandle, ...]" = ()
    context: Context | None = None
    learned: NgramMemory | None = None
    corpus: Corpus | None = None
    is_head: bool = False
    is_elsewhere: bool = False

    @property
    def all(self) -> Iterator["DrafterHandle"]:
        """This drafter and, recursively, its parts."""
        yield self
        for part in self.parts:
            yield from part.all

    @property
    def facts(self) -> dict[str, Any]:
        facts = {"name": self.member.name}
        if self.model and self.member.cost and not self.model.info.variant:
            facts |= {"path": str(self.model.info.path)}
        return facts

    @property
    def held_bytes(self) -> int:
        """Memory of weights and key-value caches."""
        return sum(handle.own_bytes for handle in self.all)

    @property
    def taken_bytes(self) -> int:
        """Those of them that are memory of the target's device."""
        return sum(handle.own_bytes for handle in self.all if not handle.is_elsewhere)

    @property
    def own_bytes(self) -> int:
        """Memory of its own weights and cache, without its parts."""
        return self.kv_bytes + (self.model.info.weight_bytes if self.model else 0)

    def close(self) -> None:
        """Free its models, close its files, and save learned n-grams."""
        for handle in self.all:
            if handle.model:
                handle.model.close()
            if handle.corpus:
                handle.corpus.close()
            if handle.learned:
                handle.learned.save()
