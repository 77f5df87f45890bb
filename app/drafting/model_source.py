"""Where the model of a drafter comes from, and which engine runs it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.drafting import self_drafter
from app.drafting.draft_spec import head_at_hand, head_of_catalogue, why_without
from app.drafting.drafter_handle import DrafterEnvironment
from app.drafting.drafter_spec import HEADS, DrafterSpec, NodeKind
from app.learned.registered import of_file
from app.learned.tuned_recipe import own_recipe, set_aside_unusable
from app.loading.placement import drafter_context
from app.loading.select import facts_before
from backends.base import Context, DraftUnavailableError, Head, Model, UsageError
from backends.engines.backend_selection import LLAMACPP, MLX, backend_for
from backends.engines.engine_facts import Runner, expected_runner
from backends.engines.model_loading import derives, refuse_unread_head
from backends.files.gguf_drafter import TrainedKind
from models.metadata.memory_bill import ModelFacts, facts_of
from models.metadata.trained_drafters import drafter_alone, drafter_of, expected_backend, head_facts
from models.reference import HubReference, Reference, entry_of

# Chooses the engine of a drafter, which may differ from the target's.
#
# The two exchange only tokens and rows of probabilities.


def drafter_backend(path: Path, wanted: str) -> str:
    """The wanted backend if it can run this drafter, else one that can.

    Raises:
        ModelError: no backend can, or the file is missing or damaged.
    """
    try:
        return backend_for(path, wanted)
    except UsageError:
        return backend_for(path)


def drafter_runner(path: Path, wanted: str, threads: int | None, gpu_layers: int | None) -> Runner:
    """Engine, device and threads that run a drafter.

    Raises:
        ModelError: no backend can run it here.
    """
    return expected_runner(drafter_backend(path, wanted), threads, gpu_layers)


Beside = Callable[[Context], Context]
"""Opens a context that drafts for another context of the target."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Facts of a drafter's model for its memory bill, and a function that loads it.

    What is loaded comes with what opens contexts of a head, which is None for a model. is_own: made
    from the target or for it, with its vocabulary.
    """

    facts: ModelFacts
    load: Callable[[], tuple[Model, Beside | None]]
    is_own: bool = True
    is_head: bool = False


def source_of(node: DrafterSpec, environment: DrafterEnvironment, room: int | None) -> ModelSource:
    """The source of a node that is one model; what is missing is downloaded, if it can fit.

    Raises:
        DraftUnavailableError: there is no such drafter for the target, or it cannot fit.
        DownloadError: it cannot be downloaded.
        ModelError: a file is damaged.
    """
    if environment.target.info.host and (node.kind in HEADS or node.reference is None):
        why = "it needs the model's weights, which are on another machine"
        raise DraftUnavailableError(f"{node.name} cannot draft", why)
    if node.kind in HEADS:
        return _head(node, environment)
    if node.reference is None:
        return _own(node, environment)
    expected = facts_before(node.reference)
    if expected is not None:  # what cannot fit is not downloaded
        drafter_context(node.name, expected, environment.context.facts.n_ctx, room)
    path = environment.obtain(node.reference).path
    found = drafter_alone(path)
    if found is not None and (environment.target.info.host or node.on_processor):
        where = "from here" if environment.target.info.host else "on the processor"
        why = "it is a head, which runs where its model does"
        raise DraftUnavailableError(f"{node.name} cannot draft {where}", why)
    if found is not None:
        refuse_unread_head(path, environment.target.info.backend)
        return _head_in(path, found.kind, environment)
    backend = drafter_backend(path, LLAMACPP if node.on_processor else environment.backend)
    gpu_layers = 0 if node.on_processor else None if backend == MLX else environment.gpu_layers
    if node.on_processor and backend != LLAMACPP:
        why = "MLX runs all models on one device; name a GGUF file"
        raise DraftUnavailableError(f"{node.name} cannot draft on the processor", why)

    def load() -> tuple[Model, None]:
        return environment.models.load(path, environment.threads, gpu_layers, backend), None

    return ModelSource(facts_of(path, backend), load, is_own=False)


def _head(node: DrafterSpec, environment: DrafterEnvironment) -> ModelSource:
    info, kind = environment.target.info, HEADS[node.kind]
    target, backend, streams = info.path, info.backend, info.streamed_bytes_per_token > 0
    path = None
    if not node.settings:
        path = head_at_hand(kind, target, environment.paths, backend, is_alone=streams)
    if path is None:
        is_meant = bool(node.settings) or backend == expected_backend(target)
        reference = node.reference if is_meant else _published(kind, environment)
        path = _same(environment.obtain(reference).path, target) if reference else None
    if path is None:
        why = why_without(kind, target, backend)
        raise DraftUnavailableError(f"{node.name} cannot draft for {target.name}", why)
    refuse_unread_head(path, backend)
    found = drafter_of(path)
    if found is None or found.kind is not kind:
        why = f"is for --draft {found.kind.word}" if found is not None else "is a model"
        raise DraftUnavailableError(f"{node.name} cannot draft", f"{path.name} {why}")
    return _head_in(path, kind, environment)


def _head_in(path: Path, kind: TrainedKind, environment: DrafterEnvironment) -> ModelSource:
    target, context = environment.target, environment.context
    trained = of_file(path)
    if trained and (why := trained.refusal(target.info.path, target.info.backend)):
        raise DraftUnavailableError(
            f"{trained.name} cannot draft for {target.info.name}", f"it {why}"
        )

    def load() -> tuple[Model, Beside]:
        if kind is TrainedKind.ASSISTANT and environment.target.info.backend == LLAMACPP:
            context.empty("an assistant shares its model's cache from the start")
        head: Head = context.beside(lambda own: environment.models.load_head(path, target, own))
        return head, head.open_beside

    return ModelSource(head_facts(path, target.info.path), load, is_head=True)


def _published(
    kind: TrainedKind, environment: DrafterEnvironment
) -> Reference | HubReference | None:
    """The head that the catalogue names for a target that another backend runs than expected."""
    info = environment.target.info
    entry = entry_of(Reference(info.name, info.path))
    return head_of_catalogue(kind, entry, environment.paths.models, info.backend)


def _same(path: Path, target: Path) -> Path:
    return target if path.exists() and path.samefile(target) else path


def _own(node: DrafterSpec, environment: DrafterEnvironment) -> ModelSource:
    assert node.kind is NodeKind.SELF
    info, paths = environment.target.info, environment.paths
    if node.recipe is None:
        set_aside_unusable(info, paths, environment.notify)
    recipe = node.recipe or own_recipe(info, paths)
    own = None
    if not derives(info):
        own = self_drafter.own_file(info, recipe, paths, environment.notify)
    facts = self_drafter.file_facts(info, own) if own else self_drafter.facts(info, recipe)

    def load() -> tuple[Model, None]:
        layers, models = environment.gpu_layers, environment.models
        return self_drafter.made(environment.target, recipe, own, layers, models), None

    return ModelSource(facts, load)
