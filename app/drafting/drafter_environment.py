"""What drafters are built in: their target, its context, and options for running models."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from app.loading.proven_models import ProvenModels
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Model
from backends.engines.backend_names import AUTO
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
    obtain: Callable[[Reference | HubReference], Reference] = at_hand
    """Downloads a missing drafter, or raises with a remedy."""
    backend: str = AUTO
    """The requested backend."""
    every_form: bool = False
    """Whether drafter models also draft trees and paths that are not expected to gain."""
    with_room: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while a child process makes or checks a drafter, which takes memory."""

    @property
    def models(self) -> ProvenModels:
        """Loader of drafter models."""
        return ProvenModels(self.paths, self.notify, self.with_room)
