"""The models that a server answers with: which are loaded, and which make room for others."""

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from app.engine.engine import Engine
from app.engine.status import Loaded, Phase
from app.loading.placement import free_for_models
from app.loading.select import choose_model, expected_backend, known_facts, lasting_name
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.paths import Paths
from app.serve.refusal import RefusalKind, RefusedError, refusal_of
from backends.base import ModelError, SpecchatError, UsageError
from backends.engines.backend_selection import forms
from models.metadata.memory_bill import ModelFacts, bill
from models.reference import HubReference, Reference

_LOOK_SECONDS = 0.05
"""Between two looks at a model that is loading."""

_CLOSE_SECONDS = 60.0
"""How long the memory of a model that is unloaded is waited for; it takes a moment."""

_TAG = ":latest"
"""What Ollama's clients add to a name without a tag."""


@dataclass(slots=True, eq=False)
class ServedModel:
    """One model, on an engine of its own while it is loaded; used on the server's loop alone.

    reference: what --models named; None for the one model of a server, which is what its engine
    has loaded.
    """

    reference: Reference | HubReference | None
    engine: Engine | None = None
    users: int = 0
    used_at: float = 0.0
    _last: Loaded | None = field(default=None, init=False)

    @property
    def is_loaded(self) -> bool:
        return self.engine is not None and self.engine.status.phase is Phase.READY

    @property
    def last(self) -> Loaded | None:
        """What is loaded, or was the last time."""
        if self.is_loaded and self.engine is not None:
            self._last = self.engine.status.loaded
        return self._last

    @property
    def name(self) -> str:
        if self.reference is not None:
            return self.reference.name
        return self.last.name if self.last else ""

    @property
    def n_vocab(self) -> int | None:
        return self.last.info.n_vocab if self.last else None

    def facts(self) -> Loaded:
        """What is known of it since it was loaded.

        Raises:
            RefusedError: it is loading, or that failed.
        """
        status = self.engine.status if self.engine is not None else None
        if self.last is None or (status is not None and not self.is_loaded):
            what = status.error.summary if status and status.error else ""
            what = what or f"{self.name or 'the model'} is not loaded yet; try again later"
            raise RefusedError(RefusalKind.LOADING, what)
        return self.last


class ServedModels:
    """The models of one server, the first with an engine that whoever made it starts and closes.

    references: those that a request chooses from by name; none for one that answers to any name.
    unload_after: idle seconds after which a model is unloaded, 0 for never.
    """

    def __init__(
        self,
        engine: Engine,
        references: Sequence[Reference | HubReference] = (),
        unload_after: float = 0.0,
    ) -> None:
        self._given = engine
        self._unload_after = unload_after
        self.all = [ServedModel(reference) for reference in references] or [ServedModel(None)]
        self.first.engine = engine
        self._closing: set[asyncio.Future[bool]] = set()
        self._loading = asyncio.Lock()
        self._whole = self._free() if len(self.all) > 1 else None
        """Bytes for all models together, None if unknown."""

    @property
    def first(self) -> ServedModel:
        return self.all[0]

    def choose(self, name: str) -> ServedModel:
        """The model that a request names; the only one has any name.

        Raises:
            RefusedError: there is no such model, or the only one is not loaded yet.
        """
        if self.first.reference is None:
            if self.first.engine is not None:
                self.first.facts()
            return self.first
        return self.named(name) if name else self.first

    def named(self, name: str) -> ServedModel:
        """The model of this very name.

        Raises:
            RefusedError: there is none.
        """
        for model in self.all:
            if name in (model.name, f"{model.name}{_TAG}"):
                return model
        names = ", ".join(model.name for model in self.listed())
        raise RefusedError(
            RefusalKind.NO_MODEL, f"there is no {name[:200]!r} here: {names}", "model"
        )

    def listed(self) -> list[ServedModel]:
        """All of them.

        Raises:
            RefusedError: the only one has no name yet, as it was not loaded.
        """
        if self.first.reference is None:
            self.first.facts()
        return self.all

    @contextmanager
    def use(self, model: ServedModel) -> Generator[None, None, None]:
        """Keep a model loaded, once it is."""
        model.users += 1
        try:
            yield
        finally:
            model.users -= 1
            self.rest(model)

    def rest(self, model: ServedModel) -> None:
        """Note that a model is idle from now on."""
        model.used_at = time.monotonic()
        if self._unload_after:
            later = asyncio.get_running_loop().call_later
            later(self._unload_after, self._unload_idle, model, model.used_at)

    async def engine_of(self, model: ServedModel) -> Engine:
        """The engine of a model, which is loaded first if it is not; others may make room.

        Raises:
            RefusedError: it cannot be loaded.
        """
        if model.engine is not None and model.is_loaded:
            return model.engine
        async with self._loading:
            if model.engine is None:
                try:
                    reserved = await self._make_room(model)
                except SpecchatError as error:
                    raise refusal_of(error) from error
                model.engine = self._given.another(self._resolvable(model), reserved)
                model.engine.start()
            engine = model.engine
            while (status := engine.status).phase is Phase.LOADING:
                await asyncio.sleep(_LOOK_SECONDS)
            if status.phase is Phase.FAILED and engine is not self._given:
                self._unload(model)
        if status.phase is not Phase.READY:
            raise refusal_of(status.error or ModelError("no model was loaded"))
        return engine

    def close(self, seconds: float) -> None:
        """Free all models but the first one's engine, once no request is answered any more."""
        for model in self.all:
            if model.engine not in (None, self._given):
                model.engine.close(seconds)

    def _resolvable(self, model: ServedModel) -> str | None:
        chosen = model.reference
        if chosen is None:
            return self._given.options.model
        return lasting_name(chosen) if isinstance(chosen, Reference) else chosen.name

    async def _make_room(self, model: ServedModel) -> int:
        """Unload what was idle longest until a model fits; returns bytes that others hold of it."""
        while True:
            await asyncio.gather(*self._closing)
            loaded = [one for one in self.all if one.engine is not None]
            free = await asyncio.to_thread(self._free)
            if not loaded or self._whole is None:
                self._whole = free
            if not loaded:
                return 0
            idle = [one for one in loaded if not one.users]
            if free is not None and self._whole is not None:
                held = sum([await asyncio.to_thread(self._bytes, one) for one in loaded])
                room = min(free, self._whole - held)
                if not idle or await asyncio.to_thread(self._bytes, model) <= room:
                    return free - room
            elif not idle:
                return 0
            self._unload(min(idle, key=lambda one: one.used_at))

    def _bytes(self, model: ServedModel) -> int:
        """Bytes that a model takes: as it is loaded, or as it is going to be."""
        options, loaded = self._given.options, model.last if model.is_loaded else None
        chosen = model.reference
        assert chosen is not None
        facts: ModelFacts | None = known_facts(loaded.reference if loaded else chosen, options)
        if facts is None:  # to be downloaded, of unknown size: the others make room
            return 1 << 62
        limit = facts.context_limit or DEFAULT_CONTEXT
        n_ctx = loaded.context_size if loaded else options.ctx or min(limit, DEFAULT_CONTEXT)
        return bill(facts, n_ctx).total + (loaded.drafter_bytes if loaded else 0)

    def _free(self) -> int | None:
        options = self._given.options
        chosen = self.first.reference
        with suppress(SpecchatError):
            if chosen is not None:
                backend = expected_backend(chosen, options.backend)
                return free_for_models(backend, options.gpu_layers)
        return None

    def _unload_idle(self, model: ServedModel, since: float) -> None:
        if model.users or model.used_at != since:
            return
        if model.is_loaded:
            self._unload(model)
        else:
            self.rest(model)

    def _unload(self, model: ServedModel) -> None:
        _ = model.last  # kept
        engine, model.engine = model.engine, None
        if engine is not None:
            closing = asyncio.ensure_future(asyncio.to_thread(engine.close, _CLOSE_SECONDS))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def served_references(
    names: Sequence[str], options: SessionOptions, paths: Paths
) -> list[Reference | HubReference]:
    """The models of some names, each of which a request can choose.

    Raises:
        SpecchatError: there is no such model, or two would have one name.
    """
    found = [choose_model(name, paths, forms(options.backend)) for name in names]
    if len({one.name for one in found}) < len(found):
        raise UsageError("--models cannot be used", "two of its models have the same name")
    return found
