"""Builds what `--draft` asks for: auto, off, lookup, self[:RECIPE], a model, or a chain."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from app.paths import Paths
from backends.base import DraftUnavailableError, Model, ModelError, Rollback, UsageError
from backends.choice import load
from decoding.draft import Drafter
from decoding.drafters.chain import Chain
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.prompt_lookup import PromptLookup
from models.recipe import Recipe
from models.reference import Reference, resolve
from models.self_draft import SelfDrafts
from models.vocabulary import require_same_vocabulary

WORDS = LOOKUP, SELF, OFF, AUTO = "lookup", "self", "off", "auto"


@dataclass(frozen=True, slots=True)
class Link:
    """One drafter of a chain: prompt lookup, the target by a recipe, or another model."""

    name: str
    recipe: Recipe | None = None
    reference: Reference | None = None


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """What was asked for; no links means that drafting is off."""

    requested: str
    links: tuple[Link, ...]


@dataclass(slots=True)
class Drafting:
    """What came of it. reason says why drafting is off, or what a chain goes without."""

    requested: str
    drafter: Drafter | None = None
    reason: str = ""
    models: tuple[Model, ...] = ()

    @property
    def state(self) -> str:
        """On or off."""
        return OFF if self.drafter is None else "on"

    @property
    def names(self) -> list[str]:
        """The drafters in order of preference."""
        return self.drafter.name.split(",") if self.drafter else []

    def close(self) -> None:
        """Free the drafter models."""
        for model in self.models:
            model.close()


def parse(text: str, paths: Paths) -> DraftSpec:
    """Read a SPEC.

    Raises:
        UsageError: a part that cannot be read, off within a chain, or a drafter named twice.
    """
    parts = [_spelled(part.strip()) for part in text.split(",")]
    if parts in ([OFF], [AUTO]):
        return DraftSpec(text, () if parts == [OFF] else (Link(LOOKUP),))
    links: list[Link] = []
    for part in parts:
        if part in (OFF, AUTO, ""):
            raise UsageError(
                f"--draft {text} contradicts itself" if part else f"--draft {text!r} has a gap",
                f"{part or 'an empty name'} cannot be part of a chain",
                "Example: --draft lookup,self",
            )
        links.append(_link(part, paths))
    names = [link.name for link in links]
    if len(set(names)) < len(names):
        raise UsageError(f"--draft {text} names a drafter twice")
    return DraftSpec(text, tuple(links))


def _spelled(part: str) -> str:
    return part.lower() if part.lower() in WORDS else part


def _link(part: str, paths: Paths) -> Link:
    if part == LOOKUP:
        return Link(LOOKUP)
    kind, colon, recipe = part.partition(":")
    if kind == SELF:
        return Link(part, recipe=Recipe.parse(recipe) if colon else None)
    try:
        return Link(part, reference=resolve(part, paths.models, WORDS))
    except ModelError as error:
        raise UsageError(error.what, error.why, error.remedy) from error


def build(
    spec: DraftSpec,
    target: Model,
    n_ctx: int,
    paths: Paths,
    threads: int | None,
    gpu_layers: int | None,
    notify: Callable[[str], None],
) -> Drafting:
    """Make the drafters of a spec; one that cannot be had is left out, with the reason."""
    drafting = Drafting(spec.requested)
    if not spec.links:
        drafting.reason = "switched off by --draft off"
        return drafting
    if target.info.rollback is not Rollback.ANY:
        drafting.reason = (
            f"{target.info.name} keeps a running state, which cannot forget rejected tokens"
        )
        return drafting
    drafters: list[Drafter] = []
    reasons: list[str] = []
    for link in spec.links:
        if link.name == LOOKUP:
            drafters.append(PromptLookup())
            continue
        try:
            path = _file(link, target, paths, notify)
            with ExitStack() as stack:
                model = stack.enter_context(closing(load(path, threads, gpu_layers)))
                drafters.append(_draft_model(model, link, target, n_ctx))
                drafting.models = (*drafting.models, model)
                stack.pop_all()
        except (DraftUnavailableError, ModelError) as error:
            reasons.append(f"{error.what}: {error.why}" if error.why else error.what)
    drafting.reason = "; ".join(reasons)
    if drafters:
        drafting.drafter = drafters[0] if len(drafters) == 1 else Chain(drafters)
    return drafting


def _file(link: Link, target: Model, paths: Paths, notify: Callable[[str], None]) -> Path:
    if link.reference is not None:
        return link.reference.path
    recipe = link.recipe or Recipe.default(target.info)
    store = SelfDrafts(paths.self_drafts)
    return store.get(
        target.info,
        recipe,
        lambda done, total: notify(f"making the self-drafter {recipe.slug}: {done} of {total}"),
    )


def _draft_model(model: Model, link: Link, target: Model, n_ctx: int) -> DraftModel:
    """A drafter on a loaded model.

    Raises:
        DraftUnavailableError: it has another vocabulary, or cannot be rolled back.
        ModelError: there is no memory for its context.
    """
    if link.reference is not None:
        require_same_vocabulary(target.tokenizer, model.tokenizer, link.name)
    if model.info.rollback is not Rollback.ANY:
        raise DraftUnavailableError(
            f"{link.name} cannot draft", "it keeps a running state, which cannot be rolled back"
        )
    return DraftModel(
        link.name,
        model.open(min(n_ctx, model.info.context_limit)),
        n_vocab=target.info.n_vocab,
        end_tokens=target.tokenizer.end_tokens,
    )
