"""Checks the settings file and the variables, as commands would when they use them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from app.drafting import draft_spec
from app.loading.placement import plan
from app.loading.select import choose_model, expected_backend, fetch_model, known_facts
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.loading.streaming import may_stream
from app.paths import Paths
from app.remote.address import Address
from app.settings import file
from app.settings.catalogue import BY_NAME, PREFIX, Value, nearest, variable_of
from app.settings.in_effect import unknown_variables, variables
from app.settings.presets import Presets, shadowed
from backends.base import ModelError, OutOfMemoryError, SpecchatError, UsageError, check_context
from backends.engines.backend_selection import AUTO, REMOTE, forms
from backends.engines.engine_facts import check_cache_type, check_gpu_layers, free_memory
from models.metadata.memory_bill import ModelFacts
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
    values = {name: settings[name] for name in BY_NAME.keys() & settings.keys()}
    of_variables: dict[str, str] = {}
    for variable in unknown_variables():
        # All begin alike, which is no likeness.
        near = nearest(variable.removeprefix(PREFIX).lower(), BY_NAME)
        hint = f". Nearest: {', '.join(map(variable_of, near))}" if near else ""
        what, remedy = f"unknown variable {variable}{hint}", f"Unset {variable}."
        faults.append(Fault("", variable, what, "", remedy))
    for name, value in variables():
        if isinstance(value, UsageError):
            values.pop(name, None)
            faults.append(_fault(name, variable_of(name), value))
        else:
            values[name], of_variables[name] = value, variable_of(name)
    for key, error in _rejected(values, paths):
        what = f"{of_variables.get(key, f'{key} in {source}')} cannot be {values[key]!r}"
        fault = UsageError(what, error.summary, error.remedy)
        faults.append(_fault(key, of_variables.get(key, source), fault))
    presets = Presets.of(paths)
    for name in presets.names():
        try:
            presets.get(name)
        except SpecchatError as error:
            faults.append(_fault("", str(presets.folder / f"{name}.toml"), error))
    hidden, source = shadowed(paths.prompts), str(paths.prompts)
    return faults + [Fault("", source, what, "", "Rename it.") for what in hidden]


def _fault(key: str, source: str, error: SpecchatError) -> Fault:
    is_variable = source == variable_of(key)
    change = f"Change or unset {source}." if is_variable else f"Change it in {source}."
    return Fault(key, source, error.what, error.why, error.remedy or change)


_Rejected = Iterator[tuple[str, SpecchatError]]


def _rejected(values: Mapping[str, Value], paths: Paths) -> _Rejected:
    """Keys whose values the app or a session would reject before it loads a model."""
    if theme := values.get("theme"):
        # It needs Textual, which only the app loads.
        from app.tui.keymap import check_theme

        yield from _refused("theme", lambda: check_theme(str(theme)))
    options = SessionOptions.of(values)
    if options.backend == REMOTE:  # only its server knows models, drafters and sizes
        address = partial(Address.of, options.url, options.remote_key_file)
        yield from _refused("url" if options.url else "backend", address)
        return
    try:
        chosen = choose_model(options.model, paths, forms(options.backend))
        backend = expected_backend(chosen, options.backend)
        if options.offline:
            chosen = fetch_model(chosen, paths, lambda _: None, offline=True)
        facts = known_facts(chosen, options)
    except SpecchatError as error:
        # If the user chose no model, the machine lacks something, and no setting is wrong.
        if options.model or options.backend != AUTO:
            yield ("model" if options.model else "backend"), error
        return

    if "draft" in values:
        yield from _refused("draft", lambda: _check_draft(options, paths, chosen, facts))
    yield from _refused("rpc", lambda: options.peers)
    yield from _refused("kv", lambda: check_cache_type(backend, options.cache_type))
    blamed = next((key for key in ("ctx", "model") if key in values), None)
    yield from _rejected_sizes(chosen, backend, facts, options, blamed)


def _check_draft(
    options: SessionOptions,
    paths: Paths,
    chosen: Reference | HubReference,
    facts: ModelFacts | None,
) -> None:
    spec = draft_spec.parse(options.draft, paths, chosen, forms(options.backend))
    if facts is not None:
        spec.check(chosen.name, facts.n_layers, facts.active_experts)


def _rejected_sizes(
    chosen: Reference | HubReference,
    backend: str,
    facts: ModelFacts | None,
    options: SessionOptions,
    blamed: str | None,
) -> _Rejected:
    """Settings whose sizes the device, its memory or the model does not allow."""
    if options.rpc:
        return  # what fits there is known once it is connected
    try:
        check_gpu_layers(backend, options.gpu_layers)
        free = free_memory(backend, options.gpu_layers)
    except UsageError as error:
        yield "gpu_layers", error
        return
    except ModelError:
        return  # the engine does not start, which the report on engines shows
    if blamed is None or facts is None:
        return
    name = chosen.name
    try:
        planned = plan(name, facts, options.ctx, DEFAULT_CONTEXT, free)
        check_context(name, planned.n_ctx, facts.context_limit or planned.n_ctx)
    except OutOfMemoryError as error:
        if not may_stream(chosen, facts, options, free):
            yield blamed, error
    except SpecchatError as error:
        yield blamed, error


def _refused(key: str, check: Callable[[], object]) -> _Rejected:
    try:
        check()
    except UsageError as error:
        yield key, error
