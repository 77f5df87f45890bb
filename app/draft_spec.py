"""Reads what `--draft` asks for: auto, off, lookup, self[:RECIPE], a model, or a chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.paths import Paths
from backends.base import ModelError, UsageError
from backends.choice import Form
from models import catalogue
from models.catalogue import DrafterKind, Entry
from models.recipe import Recipe
from models.reference import HubReference, Reference, entry_of, resolve

WORDS = LOOKUP, SELF, OFF, AUTO = "lookup", "self", "off", "auto"


@dataclass(frozen=True, slots=True)
class Link:
    """One drafter of a chain: prompt lookup, the target by a recipe, or another model."""

    name: str
    recipe: Recipe | None = None
    reference: Reference | HubReference | None = None

    @property
    def known_as(self) -> str:
        """What the user knows a drafter model by."""
        if self.reference is None:
            return "the self-drafter"
        return Path(self.reference.name).name.removesuffix(".gguf")


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """What was asked for; no links means that drafting is off."""

    requested: str
    links: tuple[Link, ...]

    @property
    def is_automatic(self) -> bool:
        """Whether specchat may add drafters that it expects to pay."""
        return self.requested.strip().lower() == AUTO

    def check(self, name: str, n_layers: int) -> None:
        """Refuse to skip layers that the target does not have; n_layers: 0 where not known.

        Raises:
            UsageError: a self-drafter is to skip one that is not there, or all of them.
        """
        for link in self.links:
            if link.recipe is not None and n_layers:
                link.recipe.check(name, n_layers)


def parse(
    text: str,
    paths: Paths,
    target: Reference | HubReference | None = None,
    forms: Sequence[Form] = (Form.GGUF,),
) -> DraftSpec:
    """Read a SPEC; short names such as 1b mean drafters of the target's family.

    forms: those wanted of a drafter that comes in several, the best first.

    Raises:
        UsageError: a part that cannot be read, off within a chain, or a drafter named twice.
    """
    parts = [_spelled(part.strip()) for part in text.split(",")]
    if parts in ([OFF], [AUTO]):
        return DraftSpec(text, () if parts == [OFF] else (Link(LOOKUP),))
    entry = entry_of(target) if target else None
    links: list[Link] = []
    for part in parts:
        if part in (OFF, AUTO, ""):
            raise UsageError(
                f"--draft {text} contradicts itself" if part else f"--draft {text!r} has a gap",
                f"{part or 'an empty name'} cannot be part of a chain",
                "Example: --draft lookup,self",
            )
        links.append(_link(part, paths, entry, forms))
    names = [link.name for link in links]
    if len(set(names)) < len(names):
        raise UsageError(f"--draft {text} names a drafter twice")
    return DraftSpec(text, tuple(links))


def _spelled(part: str) -> str:
    return part.lower() if part.lower() in WORDS else part


def _link(part: str, paths: Paths, target: Entry | None, forms: Sequence[Form]) -> Link:
    if part == LOOKUP:
        return Link(LOOKUP)
    kind, colon, recipe = part.partition(":")
    if kind == SELF:
        return Link(part, recipe=Recipe.parse(recipe) if colon else None)
    drafter = catalogue.drafter(part, target)
    if drafter and drafter.kind is DrafterKind.NEXT_TOKEN_LAYERS:
        raise UsageError(f"{part} cannot draft", "next-token layers are not run by this version")
    words = [*WORDS, *(one.alias for one in target.drafters)] if target else WORDS
    try:
        name = drafter.model if drafter else part
        return Link(part, reference=resolve(name, paths.models, words, forms))
    except ModelError as error:
        raise UsageError(error.what, error.why, error.remedy) from error
