"""Checks the settings file and the variables, as commands would when they use them."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from app.drafting import draft_spec
from app.loading.placement import can_stream, plan
from app.loading.select import choose_model, expected_backend, facts_before, fetch_model
from app.loading.session_options import DEFAULT_CONTEXT, STREAM_OFF, SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.settings import catalogue, file
from app.settings.catalogue import BY_NAME, PREFIX, nearest, variable_of
from app.settings.values import KEY_VARIABLE
from backends.base import ModelError, OutOfMemoryError, SpecchatError, UsageError, check_context
from backends.engines.backend_selection import AUTO, LLAMACPP, forms
from backends.engines.engine_facts import check_cache_type, check_gpu_layers, free_memory
from models.metadata.memory_bill import ModelFacts, facts_of
from models.reference import HubReference, Reference


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that cannot be used.

    key: of the settings file, "" if the whole file or an unknown variable is meant. source: the
    file or the variable. what, why, remedy: as in an error.
    """

    key: str
    source: str
    what: str
    why: str
    remedy: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        reason = f": {self.why}" if self.why else ""
        return f"{self.what}{reason}. {self.remedy}"


def check_settings(paths: Paths) -> list[Fault]:
    """List every value that a command would reject; nothing is loaded or downloaded."""
    settings, wrong = file.examined(paths.settings)
    source = str(paths.settings)
    faults = [_fault(key, source, error) for key, error in wrong.items()]
    if keys := settings.get(file.KEYS_TABLE):
        from app.tui.keymap import usable_keys

        _, unusable = usable_keys(keys, paths.settings)
        faults += [_fault(file.KEYS_TABLE, source, error) for error in unusable]
    given = _Given({name: settings[name] for name in BY_NAME.keys() & settings.keys()}, {})
    faults += _read_variables(given)
    for key, error in _rejected(given, paths):
        where = given.variables.get(key, f"{key} in {source}")
        why = error.summary
        fault = UsageError(f"{where} cannot be {given.values[key]!r}", why, error.remedy)
        faults.append(_fault(key, given.variables.get(key, source), fault))
    return faults


def _read_variables(given: "_Given") -> Iterator[Fault]:
    """Add the values of variables to those of the file, and report those that cannot be used."""
    variables = {variable_of(name): name for name in BY_NAME}
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in (
            *variables,
            HOME_VARIABLE,
            KEY_VARIABLE,
        ):
            # All begin alike, which is no likeness.
            near = nearest(variable.removeprefix(PREFIX).lower(), BY_NAME)
            why = f"nearest: {', '.join(map(variable_of, near))}" if near else ""
            yield Fault("", variable, f"unknown variable {variable}", why, f"Unset {variable}.")
    for variable, name in variables.items():
        try:
            value = catalogue.from_variable(name)
        except UsageError as error:
            given.values.pop(name, None)
            yield _fault(name, variable, error)
            continue
        if value is not None:
            given.values[name] = value
            given.variables[name] = variable


@dataclass(frozen=True, slots=True)
class _Given:
    """Values by key. variables: of those values that a variable sets."""

    values: dict[str, catalogue.Value]
    variables: dict[str, str]

    @property
    def options(self) -> SessionOptions:
        return SessionOptions.of(self.values)


def _fault(key: str, source: str, error: SpecchatError) -> Fault:
    is_variable = source == variable_of(key)
    change = f"Change or unset {source}." if is_variable else f"Change it in {source}."
    return Fault(key, source, error.what, error.why, error.remedy or change)


@dataclass(frozen=True, slots=True)
class _Target:
    """The model that a session would run. facts: None where they are unknown before a download."""

    reference: Reference | HubReference
    backend: str
    facts: ModelFacts | None

    @classmethod
    def of(cls, options: SessionOptions, paths: Paths) -> Self:
        """Find the model without loading it.

        Raises:
            SpecchatError: there is no such model, or it cannot run here.
        """
        chosen = choose_model(options.model, paths, forms(options.backend))
        backend = expected_backend(chosen, options.backend)
        if options.offline:
            chosen = fetch_model(chosen, paths, lambda _: None, offline=True)
        if isinstance(chosen, Reference):
            facts = facts_of(chosen.path, backend)
        else:
            facts = facts_before(chosen)
        return cls(chosen, backend, facts.with_cache(options.cache_type) if facts else None)


def _rejected(given: _Given, paths: Paths) -> Iterator[tuple[str, SpecchatError]]:
    """Keys whose values the app or a session would reject before it loads a model."""
    yield from _rejected_theme(given)
    options = given.options
    try:
        target = _Target.of(options, paths)
    except SpecchatError as error:
        # If the user chose no model, the machine lacks something, and no setting is wrong.
        if options.model or options.backend != AUTO:
            yield ("model" if options.model else "backend"), error
        return
    if "draft" in given.values:
        yield from _rejected_draft(options, target, paths)
    yield from _rejected_cache(options, target)
    yield from _rejected_sizes(given, target)


def _rejected_theme(given: _Given) -> Iterator[tuple[str, SpecchatError]]:
    if theme := given.values.get("theme"):
        # It needs Textual, which only the app loads.
        from app.tui.keymap import check_theme

        try:
            check_theme(str(theme))
        except UsageError as error:
            yield "theme", error


def _rejected_draft(
    options: SessionOptions, target: _Target, paths: Paths
) -> Iterator[tuple[str, SpecchatError]]:
    try:
        spec = draft_spec.parse(options.draft, paths, target.reference, forms(options.backend))
        if target.facts is not None:
            facts = target.facts
            spec.check(target.reference.name, facts.n_layers, facts.active_experts)
    except UsageError as error:
        yield "draft", error


def _rejected_cache(
    options: SessionOptions, target: _Target
) -> Iterator[tuple[str, SpecchatError]]:
    try:
        check_cache_type(target.backend, options.cache_type)
    except UsageError as error:
        yield "kv", error


def _rejected_sizes(given: _Given, target: _Target) -> Iterator[tuple[str, SpecchatError]]:
    """Settings whose sizes the device, its memory or the model does not allow."""
    options, facts, name = given.options, target.facts, target.reference.name
    try:
        check_gpu_layers(target.backend, options.gpu_layers)
        free = free_memory(target.backend, options.gpu_layers)
    except UsageError as error:
        yield "gpu_layers", error
        return
    except ModelError:
        return  # the engine does not start, which the report on engines shows
    blamed = next((key for key in ("ctx", "model") if key in given.values), None)
    if blamed is None or facts is None:
        return
    try:
        planned = plan(name, facts, options.ctx, DEFAULT_CONTEXT, free)
        check_context(name, planned.n_ctx, facts.context_limit or planned.n_ctx)
    except OutOfMemoryError as error:
        if not _may_stream(options, target, free):
            yield blamed, error
    except SpecchatError as error:
        yield blamed, error


def _may_stream(options: SessionOptions, target: _Target, free: int | None) -> bool:
    """Whether a model that does not fit streams, or is offered to."""
    if options.stream == STREAM_OFF or target.backend != LLAMACPP or target.facts is None:
        return False
    return free is not None and can_stream(target.facts, free)
