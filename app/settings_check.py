"""All that the settings file and the variables say and `specchat ask` would refuse, and why."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from app import draft_spec
from app.memory_plan import plan
from app.model_choice import choose_model, expected_backend
from app.obtaining import facts_before, obtain
from app.paths import Paths
from app.session_options import DEFAULT_CONTEXT, SessionOptions
from app.settings import catalogue, file
from app.settings.catalogue import BY_NAME, variable_of
from backends.base import ModelError, SpecchatError, UsageError, check_context
from backends.engines.backend_names import AUTO
from backends.engines.backend_selection import forms
from backends.engines.engine_resources import check_gpu_layers, free_memory
from models.metadata.model_facts import facts_of
from models.reference import Reference


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that cannot be used.

    key: of the settings file, "" where nothing of the file can be read. source: the file, or the
    variable. what, why, remedy: as an error has them.
    """

    key: str
    source: str
    what: str
    why: str
    remedy: str

    def as_json(self) -> dict[str, Any]:
        """By the names of its fields."""
        return asdict(self)

    def __str__(self) -> str:
        reason = f": {self.why}" if self.why else ""
        return f"{self.what}{reason}. {self.remedy}"


def check_settings(paths: Paths) -> list[Fault]:
    """Every value that a command would refuse; nothing is loaded or downloaded."""
    settings, wrong = file.examined(paths.settings)
    source = str(paths.settings)
    faults = [_fault(key, source, error) for key, error in wrong.items()]
    if keys := settings.get(file.KEYS_TABLE):
        from app.tui.keymap import check_keys  # it needs Textual, which is the app's alone

        try:
            check_keys(keys, paths.settings)
        except UsageError as error:
            faults.append(_fault(file.KEYS_TABLE, source, error))
    given = _Given({name: settings[name] for name in BY_NAME.keys() & settings.keys()}, {})
    for name in BY_NAME:
        try:
            value = catalogue.from_variable(name)
        except UsageError as error:
            faults.append(_fault(name, variable_of(name), error))
            given.values.pop(name, None)
            continue
        if value is not None:
            given.values[name] = value
            given.variables[name] = variable_of(name)
    for key, error in _refused(given, paths):
        where = given.variables.get(key, f"{key} in {source}")
        what = f"{where} cannot be {given.values[key]!r}"
        why = f"{error.what}: {error.why}" if error.why else error.what
        found = UsageError(what, why, error.remedy)
        faults.append(_fault(key, given.variables.get(key, source), found))
    return faults


@dataclass(frozen=True, slots=True)
class _Given:
    """Values by key, and the variables of those that one sets."""

    values: dict[str, catalogue.Value]
    variables: dict[str, str]

    @property
    def options(self) -> SessionOptions:
        """What a session would be asked for."""
        found: dict[str, Any] = {
            name: self.values[name]
            for name in SessionOptions.__dataclass_fields__
            if name in self.values
        }
        return SessionOptions(**found)


def _fault(key: str, source: str, error: SpecchatError) -> Fault:
    is_variable = source == variable_of(key)
    change = f"Change or unset {source}." if is_variable else f"Change it in {source}."
    return Fault(key, source, error.what, error.why, error.remedy or change)


def _refused(given: _Given, paths: Paths) -> Iterator[tuple[str, SpecchatError]]:
    """The keys whose values a session would refuse before it loads anything."""
    options = given.options
    wanted = forms(options.backend)
    try:
        chosen = choose_model(options.model, paths, wanted)
        backend = expected_backend(chosen, options.backend)
        if options.offline:
            chosen = obtain(chosen, paths, lambda _: None, offline=True)
        is_here = isinstance(chosen, Reference)
        facts = facts_of(chosen.path, backend) if is_here else facts_before(chosen)
    except SpecchatError as error:
        # Without a model of the user's own it is the machine that lacks something.
        is_of_backend = options.backend != AUTO and not options.model
        if options.model or is_of_backend:
            yield ("model" if options.model else "backend"), error
        return
    if "draft" in given.values:
        try:
            spec = draft_spec.parse(options.draft, paths, chosen, wanted)
            if facts is not None:
                spec.check(chosen.name, facts.n_layers, facts.active_experts)
        except UsageError as error:
            yield "draft", error
    try:
        check_gpu_layers(backend, options.gpu_layers)
        free = free_memory(backend, options.gpu_layers)
    except UsageError as error:
        yield "gpu_layers", error
        return
    except ModelError:
        return  # the engine does not start, which is told where engines are
    blamed = next((key for key in ("ctx", "model") if key in given.values), None)
    if blamed is not None and facts is not None:
        try:
            planned = plan(chosen.name, facts, options.ctx, DEFAULT_CONTEXT, free)
            check_context(chosen.name, planned.n_ctx, facts.context_limit or planned.n_ctx)
        except SpecchatError as error:
            yield blamed, error
