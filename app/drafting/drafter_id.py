"""Ids of composed drafters, the keys of their measurements."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.drafting.spec.drafter_node import NodeKind


def composed(kind: NodeKind, parts: Iterable[str], settings: str = "") -> str:
    """Combine the ids of parts to an id, or their names to a name."""
    return f"{kind}({','.join(parts)})" + (f":{settings}" if settings else "")


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed drafter of parts without a model, followed by one drafter model."""

    kind: NodeKind
    before: tuple[str, ...] = ()

    def of(self, model: str) -> str:
        """Return its id given the model's id, or its name given the model's name."""
        return composed(self.kind, (*self.before, model))
