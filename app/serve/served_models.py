"""The models that a server answers with: which are loaded, and which make room for others."""

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.engine.engine import Engine
from app.engine.status import Loaded, Phase
from app.loading.placement import free_for_models
from app.loading.select import choose_model, expected_backend, known_facts
from app.loading.session_options import DEFAULT_CONTEXT
from app.serve.refusal import RefusalKind, RefusedError, refusal_of
from backends.base import ModelError, SpecchatError, UsageError
from backends.engines.backend_selection import forms
from models.metadata.memory_bill import bill
from models.reference import HubReference, Reference

_LOOK_SECONDS = 0.05
"""Between two looks at a model that is loading."""

_CLOSE_SECONDS = 60.0
"""How long the memory of a model that is unloaded is waited for; it takes a moment."""


@dataclass(slots=True, eq=False)
class ServedModel:
    """One model, on an engine of its own while it is loaded; used on the server's loop alone.

    asked: as the user named it. reference: what that is; None for the one model of a server, which
    is what its engine has loaded.
    """

    asked: str | None
    reference: Reference | HubReference | None = None
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
    def path(self) -> Path | None:
        """Its file or folder, None if it was not loaded yet, and may not be here."""
        known = self.last.reference if self.last else self.reference
        return known.path if isinstance(known, Reference) else None

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
            what = what or f"{self.name or 'the model'} is loading; try again later"
            raise RefusedError(RefusalKind.LOADING, what)
        return self.last


class ServedModels:
    """The models of one server, the first with an engine that whoever made it starts and closes.

    names: of those that a request chooses from; none for one that answers to any name.
    unload_after: idle seconds after which a model is unloaded, 0 for never.

    Raises:
        SpecchatError: there is no such model, or two have one name.
    """

    def __init__(
        self, engine: Engine, names: Sequence[str] = (), unload_after: float = 0.0
    ) -> None:
        self._given, self._options = engine, engine.options
        self._unload_after = unload_after
        found = forms(self._options.backend)
        self.all = [
            ServedModel(name, choose_model(name, engine.paths, found)) for name in names
        ] or [ServedModel(self._options.model)]
        if len({model.name for model in self.all}) < len(self.all):
            raise UsageError("--models cannot be used", "two of its models have the same name")
        self.first = self.all[0]
        self.first.engine = engine
        self._closing: list[asyncio.Future[bool]] = []
        self._loading = asyncio.Lock()
        self._whole = self._free()
        """Bytes for all models together, None if unknown."""

    def choose(self, name: str) -> ServedModel:
        """The model that a request names; the only one has any name.

        Raises:
            RefusedError: there is no such model, or the only one is not loaded yet.
        """
        if self.first.reference is not None:
            return self.named(name) if name else self.first
        if self.first.engine is not None:
            self.first.facts()
        return self.first

    def named(self, name: str) -> ServedModel:
        """The model of this very name, or with what Ollama's clients add to one without a tag.

        Raises:
            RefusedError: there is none.
        """
        for model in self.listed():
            if name in (model.name, f"{model.name}:latest"):
                return model
        what = f"there is no {name[:200]!r} here: {', '.join(model.name for model in self.all)}"
        raise RefusedError(RefusalKind.NO_MODEL, what, "model")

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
                model.engine = self._given.another(model.asked, reserved)
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

    async def _make_room(self, model: ServedModel) -> int:
        """Unload what was idle longest until a model fits; returns bytes that others hold of it."""
        while True:
            await asyncio.gather(*self._closing)
            self._closing.clear()
            loaded = [one for one in self.all if one.engine is not None]
            free = self._free()
            if not loaded:
                self._whole = free
                return 0
            idle = [one for one in loaded if not one.users]
            room = None
            if free is not None and self._whole is not None:
                room = min(free, self._whole - sum(map(self._bytes, loaded)))
            if not idle or (room is not None and self._bytes(model) <= room):
                return 0 if free is None or room is None else free - room
            self._unload(min(idle, key=lambda one: one.used_at))

    def _bytes(self, model: ServedModel) -> int:
        """Bytes that a model takes: as it is loaded, or as it is going to be."""
        loaded = model.last if model.is_loaded else None
        chosen = loaded.reference if loaded else model.reference
        facts = known_facts(chosen, self._options) if chosen else None
        if facts is None:  # to be downloaded, of unknown size: the others make room
            return 1 << 62
        if loaded is None:
            limit = min(facts.context_limit or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
            return bill(facts, self._options.ctx or limit).total
        own = bill(facts, loaded.context_size)
        more = bill(facts, loaded.sequences * loaded.context_size).cache - own.cache
        return own.total + more + loaded.drafter_bytes

    def _free(self) -> int | None:
        options, chosen = self._options, self.first.reference
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
            closed = asyncio.to_thread(engine.close, _CLOSE_SECONDS)
            self._closing.append(asyncio.ensure_future(closed))
