"""The ways of decoding that a bench compares on one loaded model."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from app import draft_spec
from app.bench.results import PLAIN
from app.draft_link import LOOKUP, SELF
from app.drafter_building import Built, Place
from app.drafting import Drafting, build
from app.session import Session
from backends.base import Model, SpecchatError
from backends.engines.backend_names import MLX
from backends.engines.baselines import baseline_engines
from decoding.controller import Controller
from decoding.current_drafter import always
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.prompt_lookup import PromptLookup
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampling import SamplingSettings
from decoding.telemetry import Statistics

FIXED_LENGTHS = (3, 7, 15)
_FIXED_MATCH = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """A reply: its tokens, the seconds from the first to the last, and its statistics if known."""

    tokens: list[int]
    seconds: float
    statistics: Statistics | None = None


class Method(Protocol):
    """One way of decoding."""

    @property
    def name(self) -> str: ...

    def reply(self, prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        """Answer a prompt.

        Raises:
            ModelError: the engine failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """Generation by specchat, with a drafter or none."""

    name: str
    session: Session
    drafter: Drafter | None

    def reply(self, prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        statistics = Statistics(time.perf_counter())
        tokens: list[int] = []
        limits = Limits(max_tokens, self.session.model.tokenizer.end_tokens)
        with self.session.context.use() as context:
            events = generate(context, prompt, settings, limits, drafters=always(self.drafter))
            for event in events:
                statistics.add(event)
                if isinstance(event, Step):
                    tokens += event.tokens
        return Outcome(tokens, statistics.decode_seconds or 0.0, statistics)


@dataclass(frozen=True, slots=True)
class Theirs:
    """Generation by the engine's own Python package."""

    name: str
    session: Session
    answer: Callable[..., tuple[list[int], float]]

    def reply(self, prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        tokens, seconds = self.answer(
            prompt,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            seed=settings.seed,
            max_tokens=max_tokens,
            ends=self.session.model.tokenizer.end_tokens.__contains__,
        )
        return Outcome(tokens, seconds)


@dataclass(slots=True)
class Methods:
    """All methods of a bench, and the resources they hold; notes: what was left out, and why."""

    chosen: list[Method]
    notes: list[str]
    auto: Controller | None
    _held: ExitStack

    def close(self) -> None:
        """Free drafter models and the peer."""
        self._held.close()


def methods(
    session: Session,
    place: Place,
    given: str,
    scratch: Path,
    *,
    with_fixed: bool,
) -> Methods:
    """Plain decoding first, then each drafter under the controller, auto, and the peer.

    given: the --draft that was asked for. scratch: an empty folder, so that drafters begin without
    anything learned before. An unavailable method is left out, with a note.
    """
    place = replace(place, paths=replace(place.paths, data=scratch))
    specs = [LOOKUP, SELF, draft_spec.AUTO]
    if given.lower() not in (*specs, draft_spec.OFF):
        specs.insert(2, given)
    with ExitStack() as stack:
        collected = Methods([Ours(PLAIN, session, None)], [], None, stack)
        built: list[Built] = []
        for text in specs:
            drafting = build(session.spec(text), place)
            stack.enter_context(closing(drafting))
            drafting.compare(True)
            if drafting.missing:
                collected.notes.append(f"{text} was left out: {drafting.missing}")
            if drafting.controller is None:
                continue
            built += drafting.built
            collected.chosen.append(Ours(text, session, drafting.controller))
            if text == draft_spec.AUTO:
                collected.auto = drafting.controller
            if with_fixed:
                collected.chosen += _fixed(text, session, drafting)
        _add_peers(collected, session, built)
        collected._held = stack.pop_all()
    return collected


def _fixed(text: str, session: Session, drafting: Drafting) -> list[Method]:
    """Fixed-length drafting by the same drafters: the baseline that the controller has to beat."""
    if text == LOOKUP:
        return [
            Ours(
                f"lookup, always {length}",
                session,
                PromptLookup(min_match=_FIXED_MATCH, max_draft=length),
            )
            for length in FIXED_LENGTHS
        ]
    members = [built.member for built in drafting.built if built.model]
    if text == draft_spec.AUTO or drafting.controller is None or not members:
        return []
    length = FIXED_LENGTHS[0]
    controller = Controller(members, drafting.controller.costs, session.model.info.n_vocab)
    return [Ours(f"{text}, always {length}", session, controller.at_no_cost((length,)))]


def _add_peers(collected: Methods, session: Session, built: Sequence[Built]) -> None:
    try:
        others = baseline_engines(session.model, session.context.n_ctx, _for_peer(built))
    except SpecchatError as error:
        collected.notes.append(str(error).splitlines()[0])
        return
    for other in others:
        collected._held.callback(other.close)
        collected.chosen.append(Theirs(other.name, session, other.reply))


def _for_peer(built: Sequence[Built]) -> Model | None:
    """The first drafter that mlx-lm can draft with too: on MLX, of the model's own vocabulary."""
    fitting = (
        one.model
        for one in built
        if one.model
        and one.model.info.backend == MLX
        and isinstance(one.member.drafter, DraftModel)
    )
    return next(fitting, None)
