"""The decoding methods that a bench compares on one loaded model."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.bench import llama_server
from app.bench.results import PLAIN, DraftSeconds
from app.bench.suites import Suite
from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment, DrafterHandle
from app.drafting.drafter_spec import LOOKUP, SELF
from app.engine.session import Session
from app.engine.session_drafters import Drafting
from app.engine.weight_budget import built
from app.paths import Paths
from backends.base import SpecchatError, Warping
from backends.base.baseline_engine import BaselineEngine
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.model_loading import baseline_engines
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics


@dataclass(frozen=True, slots=True)
class Outcome:
    """One reply: its tokens, and the seconds from first to last; others are None if not told."""

    tokens: list[int]
    seconds: float
    statistics: Statistics | None = None
    ttft_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One way of decoding.

    reply: answers a prompt with so many tokens at most, or a ModelError. empty: keeps nothing of
    earlier prompts, so that the next one is read whole.
    """

    name: str
    reply: Callable[[Sequence[int], SamplingSettings, int], Outcome]
    empty: Callable[[], object]


def ours(name: str, session: Session, drafter: Drafter | None) -> Method:
    """Generation by specchat, with a drafter or none."""

    def reply(prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        statistics = Statistics(time.perf_counter())
        tokens: list[int] = []
        limits = Limits(max_tokens, session.model.tokenizer.end_tokens)
        with session.context.use() as context:
            events = generate(context, prompt, settings, limits, drafters=always(drafter))
            for event in events:
                statistics.add(event)
                if isinstance(event, Step):
                    tokens += event.tokens
        seconds = statistics.decode_seconds or 0.0
        return Outcome(tokens, seconds, statistics, statistics.ttft_seconds)

    return Method(name, reply, lambda: session.context.empty("a bench begins"))


def theirs(baseline: BaselineEngine, session: Session) -> Method:
    """Generation by the engine's own Python package."""

    def reply(prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        warping = Warping(settings.temperature, settings.top_k, settings.top_p, settings.min_p)
        ends = session.model.tokenizer.end_tokens.__contains__
        found = baseline.reply(prompt, warping, settings.seed, max_tokens=max_tokens, ends=ends)
        return Outcome(found.tokens, found.seconds, ttft_seconds=found.ttft_seconds)

    return Method(baseline.name, reply, baseline.empty)


def _of_server(way: str, address: str) -> Method:
    """Generation by llama-server, by its own clock."""
    goes_on = False

    def reply(prompt: Sequence[int], settings: SamplingSettings, max_tokens: int) -> Outcome:
        nonlocal goes_on
        told = llama_server.answer(address, prompt, settings, max_tokens, goes_on=goes_on)
        goes_on = True
        prefill, decode = (told["timings"][f"{part}_ms"] / 1000 for part in ("prompt", "predicted"))
        return Outcome(told["tokens"], decode, ttft_seconds=prefill)

    def empty() -> None:
        nonlocal goes_on
        goes_on = False

    return Method(f"llama-server {way}", reply, empty)


@dataclass(slots=True)
class Methods:
    """All methods of a bench and their resources; notes name what was left out and why."""

    resources: ExitStack
    chosen: list[Method]
    notes: list[str] = field(default_factory=list[str])
    auto: Controller | None = None
    plain_seconds: float | None = None
    """Of a token without drafts, None where nothing drafts."""
    drafts: dict[str, DraftSeconds] = field(default_factory=dict[str, DraftSeconds])
    """Cost of drafting by method, where one drafter takes time."""

    def close(self) -> None:
        self.resources.close()


def methods(
    session: Session, environment: DrafterEnvironment, given: str, scratch: Path, suite: Suite
) -> Methods:
    """Plain decoding, each drafter under the controller, auto, and others' programs.

    given: the requested --draft. scratch: an empty folder, so that drafters start without anything
    learned before. Unavailable methods are left out, with a note.
    """
    session.context.be_ready_to_draft()
    paths = environment.paths
    environment = replace(environment, paths=Paths(paths.config, scratch, paths.cache))
    with ExitStack() as stack:
        result = Methods(ExitStack(), [ours(PLAIN, session, None)])
        handles: list[DrafterHandle] = []
        for text in _specs(given, session):
            drafting = built(session.spec(text), environment, session.budget)
            stack.enter_context(closing(drafting))
            drafting.compare(True)
            if drafting.missing:
                result.notes.append(f"{text} was left out: {drafting.missing}")
            if drafting.controller is None:
                continue
            handles += drafting.handles
            result.plain_seconds = drafting.controller.costs.seconds(1)
            result.chosen.append(ours(text, session, drafting.controller))
            if (cost := _draft_seconds(drafting)) is not None:
                result.drafts[text] = cost
            if text == draft_spec.AUTO:
                result.auto = drafting.controller
        _add_baselines(result, stack, session, handles, suite)
        result.resources = stack.pop_all()
    return result


def _specs(given: str, session: Session) -> list[str]:
    """The drafters to compare; of a model that streams those that fit in memory at once."""
    if session.budget is not None:
        return list(dict.fromkeys((LOOKUP, given))) if given.lower() != draft_spec.OFF else [LOOKUP]
    specs = [LOOKUP, SELF, draft_spec.AUTO]
    if given.lower() not in (*specs, draft_spec.OFF):
        specs.insert(2, given)
    return specs


def _draft_seconds(drafting: Drafting) -> DraftSeconds | None:
    """Cost of the one drafter that takes time; None if there are several, or none."""
    members = [handle.member for handle in drafting.handles]
    costs = [member.cost for member in members if member.cost]
    if len(costs) != 1:
        return None
    return DraftSeconds(costs[0].draw_seconds, costs[0].read_seconds, costs[0].begin_seconds)


def _add_baselines(
    methods: Methods,
    stack: ExitStack,
    session: Session,
    handles: Sequence[DrafterHandle],
    suite: Suite,
) -> None:
    if session.budget is not None:
        methods.notes += [
            "plain decoding and lookup run beside the other drafters' memory, too",
            "other engines were left out: they hold no part of the weights in memory",
        ]
        return
    usable = (  # by mlx-lm: on MLX, with the target's vocabulary
        handle.model
        for handle in handles
        if handle.model
        and handle.model.info.backend == MLX
        and isinstance(handle.member.drafter, DraftModel)
    )
    model, n_ctx = session.model, session.context.facts.n_ctx
    try:
        for one in baseline_engines(model, n_ctx, next(usable, None), plain=suite.is_published):
            stack.callback(one.close)
            methods.chosen.append(theirs(one, session))
        is_here = model.info.backend == LLAMACPP and not model.info.host
        if not suite.is_published or not is_here or model.info.device.startswith("RPC"):
            return
        if not llama_server.program():
            methods.notes.append("llama-server was left out: it is not on PATH")
            return
        for way, options in llama_server.WAYS.items():
            started = llama_server.llama_server(model.info, n_ctx, options)
            methods.chosen.append(_of_server(way, stack.enter_context(started)))
        methods.notes.append("llama-server's seconds are those that it tells")
    except SpecchatError as error:
        methods.notes.append(str(error).splitlines()[0])
