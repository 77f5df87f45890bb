"""One drafter of a session: made of a link of the spec, measured, and known by a key."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from app import guessing, self_drafter
from app.acceptance_memory import AcceptanceMemory
from app.calibrations import Calibrations
from app.draft_spec import Link, LinkKind
from app.drafter_engine import drafter_backend, load_drafter
from app.drafter_model import open_drafter, tried
from app.memory_plan import drafter_context
from app.obtaining import facts_before
from app.paths import Paths
from backends.base import Context, Model
from backends.choice import AUTO
from backends.derivation import derives
from decoding.draft import Drafter
from decoding.drafters.prompt_lookup import PromptLookup
from decoding.member import Member
from models.fingerprint import fingerprint
from models.model_facts import ModelFacts, facts_of
from models.recipe import Recipe
from models.reference import HubReference, Reference, at_hand
from models.self_draft import SelfDrafts


@dataclass(frozen=True, slots=True)
class Place:
    """Where drafters are built: the target with its context, and how engines are run."""

    target: Model
    context: Context
    paths: Paths
    threads: int | None
    gpu_layers: int | None
    notify: Callable[[str], None]
    room: int | None = None
    """Bytes that drafters may take, None where that is not known."""
    obtain: Callable[[Reference | HubReference], Reference] = at_hand
    """Brings a drafter that is not on this machine, or says how to get it."""
    backend: str = AUTO
    """The one that is asked for."""


@dataclass(frozen=True, slots=True)
class Built:
    """A drafter of a session and its key in the memory, with what it holds.

    model: that it runs, if any. parts: drafters that it is made of. note: in words, what is special
    about it.
    """

    key: str
    member: Member
    model: Model | None = None
    kv_bytes: int = 0
    note: str = ""
    parts: "tuple[Built, ...]" = ()

    @property
    def all(self) -> "Iterator[Built]":
        """Itself and its parts, and theirs."""
        yield self
        for part in self.parts:
            yield from part.all

    @property
    def held_bytes(self) -> int:
        """Memory of weights and key-value caches."""
        weights = sum(one.model.info.weight_bytes for one in self.all if one.model)
        return weights + sum(one.kv_bytes for one in self.all)

    def close(self) -> None:
        """Free the models it runs."""
        for one in self.all:
            if one.model:
                one.model.close()


class Builder:
    """Makes drafters of one session, one after another, within the room that is left.

    given_up: what was, so that they fit.
    """

    def __init__(self, place: Place, calibrations: Calibrations, memory: AcceptanceMemory) -> None:
        self.given_up: list[str] = []
        self._place = place
        self._calibrations = calibrations
        self._memory = memory
        self._room = place.room

    def build(self, link: Link) -> Built:
        """Make a drafter and what it is made of.

        Raises:
            DraftUnavailableError: it cannot draft for this target.
            DownloadError: its model cannot be had.
            ModelError: its model cannot be run.
        """
        built = self._made(link)
        if self._room is not None:
            self._room -= built.held_bytes
        return built

    def drop(self, built: Built) -> None:
        """Free one that is not wanted after all."""
        if self._room is not None:
            self._room += built.held_bytes
        built.close()

    def _made(self, link: Link) -> Built:
        match link.kind:
            case LinkKind.LOOKUP:
                return self._free(link, PromptLookup())
            case LinkKind.JACOBI:
                return Built(link.name, guessing.jacobi(self._memory))
            case LinkKind.LOOKAHEAD:
                info, context = self._place.target.info, self._place.context
                member = guessing.lookahead(link, info, context, self._memory)
                return Built(link.name, member)
            case LinkKind.SELF | LinkKind.MODEL:
                return self._on_a_model(link)

    def _free(self, link: Link, drafter: Drafter) -> Built:
        """One that takes no time of its own, known by its name."""
        return Built(link.name, Member(drafter, self._memory.recall(link.name)))

    def _on_a_model(self, link: Link) -> Built:
        place = self._place
        expected = facts_before(link.reference) if link.reference else None
        if expected is not None:  # what cannot fit is not even downloaded
            drafter_context(link.name, expected, place.context.n_ctx, self._room)
        facts, loaded = self._source(link)
        n_ctx, given_up = drafter_context(link.name, facts, place.context.n_ctx, self._room)
        with ExitStack() as stack:
            model = stack.enter_context(closing(loaded()))
            is_own = link.reference is None
            opened = open_drafter(link.name, model, place.target, n_ctx, is_own=is_own)
            context = opened.context
            cost = self._calibrations.drafter(model, context, link.known_as)
            key = fingerprint(model.info.path, model.info.variant)
            acceptance = self._memory.recall(key)
            if not acceptance.counts():
                acceptance = tried(opened, place.target, place.context)
            stack.pop_all()
        self.given_up += given_up
        kv_bytes = context.n_ctx * context.kv_bytes_per_token
        return Built(key, Member(opened.drafter, acceptance, cost), model, kv_bytes, opened.note)

    def _source(self, link: Link) -> tuple[ModelFacts, Callable[[], Model]]:
        """What the model of a drafter takes of memory, and what loads it."""
        place = self._place
        info = place.target.info
        if link.reference is None and derives(info):
            recipe = link.recipe or Recipe.default(info)
            return self_drafter.facts(info, recipe), lambda: self_drafter.made(
                place.target, recipe, place.notify
            )
        path = self._file(link)
        facts = facts_of(path, drafter_backend(path, place.backend))
        return facts, lambda: load_drafter(path, place.backend, place.threads, place.gpu_layers)

    def _file(self, link: Link) -> Path:
        place = self._place
        if link.reference is not None:
            return place.obtain(link.reference).path
        info = place.target.info
        recipe = link.recipe or Recipe.default(info)
        words = f"making the self-drafter {recipe.slug}"
        return SelfDrafts(place.paths.self_drafts).get(
            info, recipe, lambda done, total: place.notify(f"{words}: {done} of {total}")
        )
