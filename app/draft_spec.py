"""Reads what `--draft` asks for: auto, off, one drafter or a chain, by name, recipe or model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.branching_spec import PathsSettings, TreeSettings
from app.draft_link import (
    JACOBI,
    LOOKAHEAD,
    LOOKUP,
    MODELS,
    NGRAM,
    RETRIEVAL,
    SELF,
    Link,
    LinkKind,
)
from app.draft_parts import EXAMPLE, split, unreadable
from app.paths import Paths
from backends.base import ModelError, UsageError
from backends.engines.backend_selection import Form
from decoding.calibration import MOST_TOKENS
from decoding.drafters.lookahead import LookaheadShape
from models import catalogue
from models.catalogue import DrafterKind, Entry
from models.reference import HubReference, Reference, entry_of, resolve
from models.self_draft.recipe import Recipe

OFF, AUTO = "off", "auto"
WORDS = (LOOKUP, RETRIEVAL, NGRAM, JACOBI, LOOKAHEAD, SELF, OFF, AUTO)

_BRANCHING = frozenset({LinkKind.TREE, LinkKind.PATHS})
"""Those made of one drafter model, which they run along several branches."""

_WITH_PARTS = frozenset({LinkKind.CASCADE, LinkKind.VOTE}) | _BRANCHING
"""Those made of other drafters, named in brackets."""

_WITH_SETTINGS = frozenset({LinkKind.LOOKAHEAD}) | _BRANCHING
"""Those that read what follows their colon."""

_LISTENING: frozenset[LinkKind] = frozenset({LinkKind.JACOBI, LinkKind.LOOKAHEAD})
"""Those that need the target's own passes, and so cannot be a part of another."""

_FREE: tuple[LinkKind, ...] = (LinkKind.LOOKUP, LinkKind.RETRIEVAL, LinkKind.NGRAM)
"""Those that auto always has: they take no time of their own."""


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """What was asked for; no links means that drafting is off."""

    requested: str
    links: tuple[Link, ...]

    @property
    def is_automatic(self) -> bool:
        """Whether specchat may add drafters that it expects to pay."""
        return self.requested.strip().lower() == AUTO

    def check(self, name: str, n_layers: int, active_experts: int | None = None) -> None:
        """Refuse self-drafters that cannot be made of the target.

        n_layers: 0 where not known. active_experts: how many a token is sent to, 0 in a model
        without experts, None where not known.

        Raises:
            UsageError: a self-drafter is to skip layers that are not there, or all of them, or to
                run as many experts as the target or more.
        """
        for recipe in (recipe for link in self.links for recipe in link.recipes):
            if n_layers:
                recipe.check(name, n_layers, active_experts)


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
    word = text.strip().lower()
    if word in (OFF, AUTO):
        return DraftSpec(text, () if word == OFF else tuple(Link(kind, kind) for kind in _FREE))
    return DraftSpec(text, _Reader(text, paths, entry_of(target) if target else None, forms).read())


class _Reader:
    """Reads one SPEC that is neither auto nor off."""

    def __init__(
        self, text: str, paths: Paths, target: Entry | None, forms: Sequence[Form]
    ) -> None:
        self._text = text
        self._paths = paths
        self._target = target
        self._forms = forms

    def read(self) -> tuple[Link, ...]:
        return self._links(self._text)

    def _links(self, text: str) -> tuple[Link, ...]:
        """The links of a chain, or the parts of one link."""
        links = tuple(self._link(part.strip()) for part in split(text, _WITH_SETTINGS))
        names = [name for link in links for name in {link.name, *link.models}]
        for name in names:
            if names.count(name) > 1:
                what = f"--draft {self._text} names {name} twice"
                raise UsageError(what, "each drafter has one place")
        return links

    def _link(self, part: str) -> Link:
        if part.lower() in (OFF, AUTO, ""):
            raise UsageError(
                f"--draft {self._text!r} {'contradicts itself' if part else 'has a gap'}",
                f"{part.lower() or 'an empty name'} cannot be part of a chain",
                EXAMPLE,
            )
        made = re.fullmatch(r"([a-z]+)\((.*)\)(:.*)?", part, re.IGNORECASE | re.DOTALL)
        if made and made[1].lower() in _WITH_PARTS:
            kind = LinkKind(made[1].lower())
            if not made[3] or kind in _WITH_SETTINGS:
                return self._made(kind, made[2], (made[3] or "").lower())
        word, colon, settings = part.partition(":")
        if word.lower() == SELF:
            recipe = Recipe.parse(settings) if colon else None
            return Link(LinkKind.SELF, f"{SELF}{colon}{settings.lower()}", recipe)
        named = set(LinkKind) - MODELS - _WITH_PARTS
        if word.lower() in (_WITH_SETTINGS if colon else named):
            kind = LinkKind(word.lower())
            if kind is LinkKind.LOOKAHEAD:
                LookaheadShape.parse(settings.lower()).check(MOST_TOKENS)
            return Link(kind, part.lower(), settings=settings.lower())
        if word.lower() in named:
            raise unreadable(self._text, f"{word.lower()} takes no settings")
        if word.lower() in _WITH_PARTS:
            self._check(LinkKind(word.lower()), ())
        return self._model(part)

    def _made(self, kind: LinkKind, inner: str, settings: str) -> Link:
        """One made of others; settings begin with their colon."""
        parts = self._links(inner)
        if kind is LinkKind.TREE:
            TreeSettings.parse(settings[1:])
        if kind is LinkKind.PATHS:
            PathsSettings.parse(settings[1:])
        check = self._check_branching if kind in _BRANCHING else self._check
        check(kind, parts)
        name = f"{kind}({','.join(one.name for one in parts)}){settings}"
        return Link(kind, name, parts=parts, settings=settings[1:])

    def _check_branching(self, kind: LinkKind, parts: Sequence[Link]) -> None:
        if len(parts) != 1 or parts[0].kind not in MODELS:
            why = f"{kind} takes one drafter, which is a model"
            raise unreadable(self._text, why, f"Example: --draft '{kind}(self)'")

    def _check(self, kind: LinkKind, parts: Sequence[Link]) -> None:
        """Refuse what cannot be made of drafters of these kinds."""
        example = f"Example: --draft '{kind}(lookup,self)'"
        if len(parts) < 2:
            raise unreadable(self._text, f"a {kind} takes two drafters or more", example)
        if any(part.kind in _LISTENING for part in parts):
            raise UsageError(
                f"--draft {self._text} cannot be",
                "jacobi and lookahead guess in the model's own passes, and in no others",
                "Name them beside it, as in: --draft lookup,lookahead",
            )
        branching = [part.name for part in parts if part.kind in _BRANCHING]
        if branching:
            raise UsageError(
                f"--draft {self._text} cannot be",
                f"{branching[0]} drafts for the model itself, and for no other drafter",
                f"Name it beside the {kind}, or leave its branches out.",
            )
        wrong = [part.name for part in parts[1:] if part.kind not in MODELS]
        if kind is LinkKind.CASCADE and wrong:
            why = f"{wrong[0]} is no model, which all but the first drafter of a cascade are"
            raise unreadable(self._text, why, example)

    def _model(self, part: str) -> Link:
        target = self._target
        drafter = catalogue.drafter(part, target)
        if drafter and drafter.kind is DrafterKind.NEXT_TOKEN_LAYERS:
            raise UsageError(
                f"{part} cannot draft", "next-token layers are not run by this version"
            )
        words = [*WORDS, *(one.alias for one in target.drafters)] if target else WORDS
        try:
            name = drafter.model if drafter else part
            found = resolve(name, self._paths.models, words, self._forms)
        except ModelError as error:
            raise UsageError(error.what, error.why, error.remedy) from error
        return Link(LinkKind.MODEL, part, reference=found)
