"""Parses a `--draft` SPEC: auto, off, or a list of drafters, whose heads it finds."""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.drafting.drafter_spec import (
    HEADS,
    JACOBI,
    LOOKAHEAD,
    LOOKUP,
    MODELS,
    NGRAM,
    ON_PROCESSOR,
    RETRIEVAL,
    SELF,
    DrafterSpec,
    NodeKind,
    PathsSettings,
    TreeSettings,
)
from app.learned.registered import Registered, found_here, named
from app.loading.session_options import AUTO_DRAFT
from app.paths import Paths
from backends.base import ModelError, UsageError
from backends.engines.backend_selection import LLAMACPP, MLX, Form
from backends.files.gguf_drafter import TrainedKind
from decoding.drafters.lookahead import LookaheadShape
from decoding.estimation.calibration import MOST_TOKENS
from models import catalogue
from models.catalogue import CatalogueDrafter, Entry
from models.metadata.trained_drafters import FoundDrafter, found_for
from models.reference import HubReference, Reference, entry_of, resolve
from models.self_draft.recipe import Recipe
from models.stores.available_models import downloaded_drafter, downloaded_folder

EXAMPLE = "Example: --draft lookup,self"


def split(text: str, with_settings: Collection[str]) -> list[str]:
    """Split at commas outside brackets, except those between the settings of one drafter.

    with_settings: words of drafters that accept settings after a colon.

    Raises:
        UsageError: brackets do not match.
    """
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise unreadable(text, "its brackets do not match", EXAMPLE)
    joined: list[str] = []
    for part in parts:
        if joined and re.match(r"\s*\w+\s*=", part) and _is_open(joined[-1], with_settings):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def _is_open(part: str, with_settings: Collection[str]) -> bool:
    match = re.match(r"\s*([a-z]+)(\(.*\))?\s*:", part, re.IGNORECASE | re.DOTALL)
    return match is not None and match[1].lower() in with_settings


def unreadable(text: str, why: str, remedy: str = "") -> UsageError:
    return UsageError(f"--draft {text} cannot be read", why, remedy)


_NEXT = TrainedKind.NEXT_TOKEN_LAYERS
_FOR_ANOTHER = {
    LLAMACPP: "{} is for MLX, which runs the model's MLX folder",
    MLX: "{} is for llama.cpp, which runs the model's GGUF file",
}
"""Why a head is of no use to a backend."""


def head_beside(
    kind: TrainedKind, target: Path, backend: str | None = None, *, is_alone: bool = False
) -> Path | None:
    """The file or folder of the first head of a kind that a model brings, or that lies beside it.

    backend: the one that runs the model, by default the expected one. is_alone: only one in a file
    or folder of its own, as a model that streams leaves its own layers out.
    """
    found = _found(target, backend)
    fitting = (each for each in found if each.drafter.kind is kind and not each.misfit)
    paths = (each.path for each in fitting if each.drafter.is_alone or not is_alone)
    return next(paths, None)


def head_at_hand(
    kind: TrainedKind, target: Path, paths: Paths, backend: str, *, is_alone: bool = False
) -> Path | None:
    """As head_beside, and after those the first that was trained for the model."""
    beside = head_beside(kind, target, backend, is_alone=is_alone)
    if beside is not None or not target.exists():
        return beside
    found = (each for _, each in found_here(paths, target, backend) if not each.misfit)
    return next((each.path for each in found if each.drafter.kind is kind), None)


def head_of_catalogue(
    kind: TrainedKind, target: Entry | None, folder: Path, backend: str = LLAMACPP
) -> Reference | HubReference | None:
    """The head that the catalogue names for a model, in a file or a folder of its own.

    None if it names none that the backend of the model reads. folder: the user's models folder.
    """
    known = _known(kind, target)
    if known is None or not known.runs_on(backend):
        return None
    if backend == MLX:
        found = downloaded_folder(known.mlx, folder)
        return Reference(known.mlx, found) if found else HubReference(known.mlx, known.mlx)
    if known.is_in_model:
        return None
    repository, file = known.repository, known.file
    found = downloaded_drafter(repository, file, folder) if file else None
    name = f"{repository}:{file}" if file else repository
    return Reference(found.name, found) if found else HubReference(name, repository, None, file)


def why_without(kind: TrainedKind, target: Path, backend: str = LLAMACPP) -> str:
    found = _found(target, backend)
    for each in found:
        if each.drafter.kind is kind:
            why = each.misfit or "its own layers are left out of a model that streams"
            return f"{each.path.name}: {why}"
    known = _known(kind, entry_of(Reference(target.name, target)))
    if known is None:
        beside = "it brings none" if kind is _NEXT else "there is none beside it"
        others = [f"--draft {each.drafter.kind.word}" for each in found if not each.misfit]
        rather = f"; there is {', '.join(others)}" if others else ""
        return f"{beside}, and the catalogue names none{rather}"
    return why_not(known, backend) or "this file was made without them"


def why_not(known: CatalogueDrafter, backend: str) -> str:
    """Why a head of the catalogue is of no use to a model's backend; empty if it may be."""
    if not known.runs_on(backend):
        return _FOR_ANOTHER[backend].format(known.mlx or known.repository or "it")
    if backend == LLAMACPP and known.is_in_model and known.repository:
        return f"only the model's files in {known.repository} have them"
    return ""


def _found(target: Path, backend: str | None) -> list[FoundDrafter]:
    with suppress(ModelError):  # loading it tells what is wrong
        return found_for(target, backend) if target.exists() else []
    return []


def _known(kind: TrainedKind, target: Entry | None) -> CatalogueDrafter | None:
    return catalogue.drafter(kind.word, target) if target else None


OFF, AUTO = "off", AUTO_DRAFT
WORDS = (LOOKUP, RETRIEVAL, NGRAM, JACOBI, LOOKAHEAD, SELF, *HEADS, OFF, AUTO)

_BRANCHING = frozenset({NodeKind.TREE, NodeKind.PATHS})
"""Drafters that run one drafter model along several branches."""

_WITH_PARTS = frozenset({NodeKind.CASCADE, NodeKind.VOTE}) | _BRANCHING
"""Drafters composed of others, which are named in brackets."""

_WITH_SETTINGS = frozenset({NodeKind.LOOKAHEAD}) | _BRANCHING
"""Drafters that accept settings after a colon."""

_LISTENING: frozenset[NodeKind] = frozenset({NodeKind.JACOBI, NodeKind.LOOKAHEAD})
"""Drafters that use the target's own passes, and so cannot be part of another."""

_FREE: tuple[NodeKind, ...] = (NodeKind.LOOKUP, NodeKind.RETRIEVAL, NodeKind.NGRAM)
"""Drafters that auto always includes, as they cost next to nothing."""


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """A parsed SPEC; without nodes drafting is off."""

    requested: str
    nodes: tuple[DrafterSpec, ...]

    @property
    def is_automatic(self) -> bool:
        return self.requested.strip().lower() == AUTO

    def check(self, name: str, n_layers: int, active_experts: int | None = None) -> None:
        """Check that self-drafters can be made from the target.

        n_layers: 0 if unknown. active_experts: experts per token, 0 in a model without experts,
        None if unknown.

        Raises:
            UsageError: a self-drafter skips layers that do not exist, or all of them, or runs at
                least as many experts as the target.
        """
        for own in (own for node in self.nodes for own in node.self_drafters):
            if n_layers and own.recipe is not None:
                own.recipe.check(name, n_layers, active_experts)


def parse(
    text: str,
    paths: Paths,
    target: Reference | HubReference | None = None,
    forms: Sequence[Form] = (Form.GGUF,),
) -> DraftSpec:
    """Parse a SPEC; short names such as 1b mean drafters of the target's family.

    forms: accepted file formats of drafters, preferred ones first.

    Raises:
        UsageError: a part is invalid, off or auto is in a list, or a drafter is named twice.
    """
    word = text.strip().lower()
    if word in (OFF, AUTO):
        return DraftSpec(
            text, () if word == OFF else tuple(DrafterSpec(kind, kind) for kind in _FREE)
        )
    return DraftSpec(text, _Reader(text, paths, target, forms).read())


class _Reader:
    """Parses one SPEC that is neither auto nor off."""

    def __init__(
        self,
        text: str,
        paths: Paths,
        target: Reference | HubReference | None,
        forms: Sequence[Form],
    ) -> None:
        self._text = text
        self._paths = paths
        self._path = target.path if isinstance(target, Reference) else None
        is_for_mlx = isinstance(target, HubReference) and target.form is Form.MLX
        is_folder = self._path.is_dir() if self._path else is_for_mlx
        self._backend = MLX if is_folder else LLAMACPP
        """Expected to run the target."""
        self._target = entry_of(target) if target else None
        self._forms = forms

    def read(self) -> tuple[DrafterSpec, ...]:
        return self._nodes(self._text)

    def _nodes(self, text: str) -> tuple[DrafterSpec, ...]:
        """Parse a list of drafters: the whole SPEC, or the parts of a composed drafter."""
        nodes = tuple(self._node(part.strip()) for part in split(text, _WITH_SETTINGS))
        names = [name for node in nodes for name in {node.name, *node.models}]
        for name in names:
            if names.count(name) > 1:
                what = f"--draft {self._text} names {name} twice"
                raise UsageError(what, "each drafter has one place")
        return nodes

    def _node(self, part: str) -> DrafterSpec:
        if part.lower() in (OFF, AUTO, ""):
            raise UsageError(
                f"--draft {self._text!r} {'contradicts itself' if part else 'has a gap'}",
                f"{part.lower() or 'an empty name'} cannot be part of a chain",
                EXAMPLE,
            )
        composed = re.fullmatch(r"([a-z]+)\((.*)\)(:.*)?", part, re.IGNORECASE | re.DOTALL)
        if composed and composed[1].lower() in _WITH_PARTS:
            kind = NodeKind(composed[1].lower())
            if not composed[3] or kind in _WITH_SETTINGS:
                return self._composed(kind, composed[2], (composed[3] or "").lower())
        word, colon, settings = part.partition(":")
        if word.lower() == SELF:
            recipe = Recipe.parse(settings) if colon else None
            return DrafterSpec(NodeKind.SELF, f"{SELF}{colon}{settings.lower()}", recipe)
        if word.lower() in HEADS:
            return self._head(NodeKind(word.lower()), part, settings)
        named = set(NodeKind) - MODELS - _WITH_PARTS
        if word.lower() in (_WITH_SETTINGS if colon else named):
            kind = NodeKind(word.lower())
            if kind is NodeKind.LOOKAHEAD:
                LookaheadShape.parse(settings.lower()).check(MOST_TOKENS)
            return DrafterSpec(kind, part.lower(), settings=settings.lower())
        if word.lower() in named:
            raise unreadable(self._text, f"{word.lower()} takes no settings")
        if word.lower() in _WITH_PARTS:
            self._check(NodeKind(word.lower()), ())
        return self._model(part)

    def _composed(self, kind: NodeKind, inner: str, settings: str) -> DrafterSpec:
        """A composed drafter; settings begin with their colon."""
        parts = self._nodes(inner)
        if kind is NodeKind.TREE:
            TreeSettings.parse(settings[1:])
        if kind is NodeKind.PATHS:
            PathsSettings.parse(settings[1:])
        check = self._check_branching if kind in _BRANCHING else self._check
        check(kind, parts)
        name = f"{kind}({','.join(drafter.name for drafter in parts)}){settings}"
        return DrafterSpec(kind, name, parts=parts, settings=settings[1:])

    def _check_branching(self, kind: NodeKind, parts: Sequence[DrafterSpec]) -> None:
        if len(parts) != 1 or parts[0].kind not in MODELS:
            why = f"{kind} takes one drafter, which is a model"
            raise unreadable(self._text, why, f"Example: --draft '{kind}(self)'")

    def _check(self, kind: NodeKind, parts: Sequence[DrafterSpec]) -> None:
        """Check that a cascade or a vote can be composed of these parts."""
        example = f"Example: --draft '{kind}(lookup,self)'"
        if len(parts) < 2:
            raise unreadable(self._text, f"a {kind} takes two drafters or more", example)
        if any(part.kind in _LISTENING for part in parts):
            raise UsageError(
                f"--draft {self._text} is not possible",
                "jacobi and lookahead guess in the model's own passes, and in no others",
                "Name them beside it, as in: --draft lookup,lookahead",
            )
        branching = [part.name for part in parts if part.kind in _BRANCHING]
        if branching:
            raise UsageError(
                f"--draft {self._text} is not possible",
                f"{branching[0]} drafts for the model itself, and for no other drafter",
                f"Name it beside the {kind}, or leave its branches out.",
            )
        wrong = [part.name for part in parts[1:] if part.kind not in MODELS]
        if kind is NodeKind.CASCADE and wrong:
            why = f"{wrong[0]} is no model, which all but the first drafter of a cascade are"
            raise unreadable(self._text, why, example)

    def _head(self, kind: NodeKind, part: str, file: str) -> DrafterSpec:
        """A drafter trained for the target; file: as the user named it, empty if not."""
        if file:
            name = f"{kind}:{file}"
            return DrafterSpec(kind, name, reference=self._resolved(file), settings=file)
        if part.endswith(":"):
            raise unreadable(self._text, f"no file is named after {kind}:")
        folder, backend = self._paths.models, self._backend
        beside = head_at_hand(HEADS[kind], self._path, self._paths, backend) if self._path else None
        if beside is not None:
            return DrafterSpec(kind, kind.value, reference=Reference(beside.name, beside))
        known = head_of_catalogue(HEADS[kind], self._target, folder, backend)
        return DrafterSpec(kind, kind.value, reference=known)

    def _model(self, part: str) -> DrafterSpec:
        word, colon, name = part.partition(":")
        if colon and word.lower() == ON_PROCESSOR:
            return self._on_processor(name.strip())
        if (trained := named(self._paths, part)) is not None:
            return self._registered(trained)
        drafter = catalogue.drafter(part, self._target)
        reference = self._resolved(drafter.model if drafter else part)
        return DrafterSpec(NodeKind.MODEL, part, reference=reference)

    def _registered(self, trained: Registered) -> DrafterSpec:
        reference = Reference(trained.name, trained.path)
        if self._path and (why := trained.refusal(self._path, self._backend)):
            what = f"--draft {trained.name} cannot draft for {self._path.name}"
            raise UsageError(
                what, f"it {why}", "specchat models list names what was trained for it."
            )
        return DrafterSpec(NodeKind.MODEL, trained.name, reference=reference)

    def _on_processor(self, part: str) -> DrafterSpec:
        node = self._node(part)
        if node.kind is not NodeKind.MODEL or node.on_processor:
            why = f"{ON_PROCESSOR}: stands before the name of a model"
            raise unreadable(self._text, why, f"Example: --draft {ON_PROCESSOR}:FILE")
        return replace(node, name=f"{ON_PROCESSOR}:{node.name}", on_processor=True)

    def _resolved(self, name: str) -> Reference | HubReference:
        known = self._target.drafters if self._target else ()
        words = dict.fromkeys([*WORDS, *(each.alias for each in known)])
        try:
            return resolve(name, self._paths.models, [*words], self._forms)
        except ModelError as error:
            raise UsageError(error.what, error.why, error.remedy) from error
