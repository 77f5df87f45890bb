"""Hues of drafters: the same one on every screen, and nothing else on the screen has one."""

from enum import StrEnum

_KIND_OF_FAMILY = {
    "lookup": "lookup",
    "retrieval": "retrieval",
    "ngram": "ngram",
    "lookahead": "lookahead",
    "jacobi": "lookahead",
}


class Kind(StrEnum):
    """Kinds of drafters that have a hue of their own."""

    LOOKUP = "lookup"
    RETRIEVAL = "retrieval"
    NGRAM = "ngram"
    MODEL = "model"
    LOOKAHEAD = "lookahead"

    @property
    def hue(self) -> str:
        """The theme's colour of the kind, as a style."""
        return f"$drafter-{self}"


def kind_of(drafter: str) -> Kind:
    """The kind of a drafter, from its name; any model, and the target itself, is a model.

    A part of a composed drafter, such as "cascade/lookup", has the kind of its last part.
    """
    family = drafter.rsplit("/", 1)[-1].partition(":")[0]
    return Kind(_KIND_OF_FAMILY.get(family, Kind.MODEL))
