"""Ids of drafters that are made of others: what is learned of them is kept under these."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.drafting.spec.drafter_node import LinkKind


def composed(kind: LinkKind, parts: Iterable[str], settings: str = "") -> str:
    """A drafter made of parts: its id by their ids, as well as its name by their names."""
    return f"{kind}({','.join(parts)})" + (f":{settings}" if settings else "")


@dataclass(frozen=True, slots=True)
class Composition:
    """A drafter made of drafters without a model, and of one model after them."""

    kind: LinkKind
    before: tuple[str, ...] = ()

    def of(self, model: str) -> str:
        """Its id by the model's id, or its name by the model's name."""
        return composed(self.kind, (*self.before, model))
