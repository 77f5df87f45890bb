"""What is held beside a model that streams, and what is claimed of its speed."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.drafting import draft_spec
from app.drafting.choose import memory_choice, pair_knowledge
from app.drafting.choose.memory_choice import SplitChoice, StreamContenders, planned_stream
from app.drafting.choose.pair_knowledge import costs_beside, displaced_seconds
from app.engine.session_opening import open_session
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.speeds import PlainReplies
from app.loading.placement import GpuPlanner, stream_plan
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Model
from backends.engines.model_loading import load
from backends.hardware.bandwidth import Bandwidth
from backends.streaming.mapped_file import DiskSpeed
from backends.streaming.weight_plan import STREAMED_CHUNK
from decoding.estimation.acceptance import ANY_POSITION, TRAINED_PRIOR, Acceptance
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.draft_length import predicted_speedup
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import CHUNK, ModelFacts, bill, compute_bytes, facts_of, host_bytes
from models.reference import Reference
from models.self_draft.recipe import Recipe, weights_made
from models.self_draft.self_draft_store import SelfDrafts
from tests.fixtures.large_model import FACTS, LAYOUT
from tests.fixtures.tiny.kinds import Pair

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks that read a kilobyte a second."""
    monkeypatch.setattr(memory_choice, "disk_speed", lambda *_: DiskSpeed(1e3, "measured"))


def working(facts: ModelFacts, most_tokens: int = STREAMED_CHUNK) -> int:
    """Working memory of a context of 512 tokens."""
    return compute_bytes(facts, 512, most_tokens) + host_bytes(facts, 512, most_tokens)


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("is_measured", [False, True])
def test_a_named_drafter_gets_its_memory_and_a_claim_only_if_measured(
    tiny_llama: Callable[..., Path], is_measured: bool
) -> None:
    target, drafter = tiny_llama(layers=4), tiny_llama(layers=1)
    paths, reference = Paths.of_this_user(), Reference("target", target)
    options = SessionOptions("target", str(drafter), ctx=512)
    spec = draft_spec.parse(options.draft, paths, reference)
    facts = facts_of(target)
    if is_measured:
        counts = {f"sampled:{ANY_POSITION}": (90.0, 100.0), f"greedy:{ANY_POSITION}": (90.0, 100.0)}
        memory = AcceptanceMemory(target, paths)
        memory.remember(fingerprint(drafter), Acceptance(counts), {"name": "drafter"})
        memory.save()
    needed = bill(facts_of(drafter), min(512, facts_of(drafter).context_limit)).total
    beside = bill(facts, 512).cache + working(facts)
    free = round((beside + needed) * 5 / 4)  # a fifth is reserved
    alone = stream_plan("target", facts, 512, 512, free).lock_bytes
    planned, outlook = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert (planned.room, planned.lock_bytes) == (needed, (alone or 0) - needed)
    assert outlook.share.streamed > 0
    assert outlook.rate is not None
    assert outlook.drafted is None or is_measured
    without = draft_spec.parse("off", paths, reference)
    planned, _ = planned_stream(reference, facts, without, options, paths, 512, free)
    assert (planned.room, planned.lock_bytes) == (0, alone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_what_was_measured_of_a_named_head_is_known(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As a session remembers it: by its file and its kind."""
    target, head = pair(kind)
    paths, reference = Paths.of_this_user(), Reference("target", target)
    spec = draft_spec.parse(f"{kind}:{head}", paths, reference)
    options = SessionOptions("target", spec.requested, threads=1)
    contenders = StreamContenders(reference, facts_of(target), spec, options, paths, 256)
    (before,) = contenders.all(1e9)
    assert (before.is_measured, before.acceptance) == (False, TRAINED_PRIOR)
    costs = iter([Measured({1: 0.5}), Measured({1: 0.002, 16: 0.003}), Measured({1: 0.002})])
    monkeypatch.setattr("app.learned.calibrations.calibrate", lambda *_, **__: next(costs))
    session_options = replace(options, model=str(target), ctx=256)
    with closing(open_session(session_options, paths, lambda _: None)) as session:
        (handle,) = session.drafting.handles
        assert handle.member.cost is not None
        drawn = handle.member.cost.of_token
        session.drafting.remember()
    (after,) = contenders.all(1e9)
    assert after.is_measured
    assert after.draw_seconds == pytest.approx(drawn)


@pytest.mark.usefixtures("slow_disk")
def test_the_model_with_fewer_experts_needs_a_context_only(tiny_llama: Callable[..., Path]) -> None:
    target = tiny_llama(layers=4, experts=(4, 2))
    paths, reference = Paths.of_this_user(), Reference("target", target)
    facts = facts_of(target)
    options = SessionOptions("target", "self:experts=1", ctx=512)
    spec = draft_spec.parse(options.draft, paths, reference)
    free = round(2 * (facts.attention.cache_bytes(512) + working(facts, 512)) * 5 / 4)
    planned, _ = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert planned.room == facts.attention.cache_bytes(512) + working(facts, CHUNK)


def test_without_a_measured_disk_no_speed_is_claimed(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_choice, "disk_speed", lambda *_: None)
    target = tiny_llama(layers=4)
    paths, reference = Paths.of_this_user(), Reference("target", target)
    spec = draft_spec.parse("auto", paths, reference)
    options = SessionOptions("target", ctx=512)
    _, outlook = planned_stream(reference, facts_of(target), spec, options, paths, 512, 100_000_000)
    assert outlook.rate is None
    assert "tok/s" not in outlook.words


@pytest.mark.usefixtures("slow_disk")
def test_a_speed_that_was_measured_takes_the_place_of_the_estimate(
    tiny_llama: Callable[..., Path],
) -> None:
    target = tiny_llama(layers=4)
    paths, reference = Paths.of_this_user(), Reference("target", target)
    options, facts = SessionOptions("target", "off", ctx=512), facts_of(target)
    spec = draft_spec.parse("off", paths, reference)
    free = round((facts.attention.cache_bytes(512) + working(facts)) * 5 / 4)
    planned, expected = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert expected.rate is not None
    with closing(load(target, None, 0, lock_bytes=planned.lock_bytes)) as model:
        replies = PlainReplies.of(model.info, paths)
    replies.with_measured(321.0)
    _, known = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert known.rate == 321.0


def test_a_self_drafter_is_counted_before_and_after_it_is_made(demo: Model, home: Path) -> None:
    paths, info = Paths.of_this_user(), demo.info
    reference, facts = Reference("demo", info.path), facts_of(info.path)
    options, recipe = SessionOptions("demo", ctx=512), Recipe.parse("skip=1-28")

    def contenders(draft: str) -> StreamContenders:
        spec = draft_spec.parse(draft, paths, reference)
        return StreamContenders(reference, facts, spec, options, paths, 512)

    weights = weights_made(info.path, Recipe("q4_0"))
    expected = bill(replace(facts, weight_bytes=weights), 512).total
    assert contenders("lookup,self:q4_0").named_bytes == expected
    without_layers = contenders("self:skip=1-28").named_bytes
    assert without_layers > bill(replace(facts, weight_bytes=30_000_000), 512).total, "embeddings"
    assert contenders("self").named_bytes == contenders("vote(lookup,self:q4_0)").named_bytes
    assert list(contenders("auto").all(20e9)) == []
    made = SelfDrafts(paths.self_drafts).get(info, recipe, lambda _done, _total: None)
    assert contenders("self:skip=1-28").named_bytes == bill(facts_of(made), 512).total
    assert bill(facts_of(made), 512).total <= without_layers
    (found,) = contenders("auto").all(20e9)
    assert (found.name, found.is_measured) == ("self:skip1to28", False)
    assert found.memory_bytes == bill(facts_of(made), 512).total
    memory = AcceptanceMemory(info.path, paths)
    counts = {f"greedy:{ANY_POSITION}": (90.0, 100.0)}
    memory.remember(fingerprint(made), Acceptance(counts), {"name": "self:skip=1-28"})
    memory.save()
    (found,) = contenders("tree(self:skip=1-28)").all(20e9)
    assert (found.acceptance, found.is_measured) == (0.9, True)


GB = 10**9
PLANNER = GpuPlanner("big", FACTS, LAYOUT, None, 8192, None, (24 * GB,), 32 * GB)

Choose = Callable[..., SplitChoice]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tiny_llama: Callable[..., Path], home: Path) -> Choose:
    """A choice for the figures of a large model, where a named drafter takes so many bytes."""
    monkeypatch.setattr(memory_choice, "gpu_bandwidth", lambda: Bandwidth(900e9, "made up"))
    monkeypatch.setattr(
        pair_knowledge, "processor_bandwidth", lambda *_: Bandwidth(60e9, "made up")
    )
    monkeypatch.setattr(memory_choice, "disk_speed", lambda *_: DiskSpeed(3e9, "made up"))
    reference = Reference("big", tiny_llama(layers=1))
    paths = Paths.of_this_user()

    def of(
        named: int = 0, draft: str = "off", *, streams: bool = False, planner: GpuPlanner = PLANNER
    ) -> SplitChoice:
        monkeypatch.setattr(StreamContenders, "named_bytes", named)
        options = SessionOptions("big", draft)
        spec = draft_spec.parse(draft, paths, reference)
        return SplitChoice(reference, spec, options, paths, planner, streams)

    return of


def test_a_drafter_on_the_processor_takes_nothing_of_the_gpus(choose: Choose) -> None:
    choice = choose(draft="llama3.2-1b,cpu:llama3.2-1b")
    contenders = choice._contenders(choice._planned(PLANNER, 0))
    assert [node.name for node in contenders.spec.nodes] == ["llama3.2-1b"]


def test_a_named_drafter_takes_layers_and_no_context(choose: Choose) -> None:
    alone, outlook = choose().plan()
    beside, slower = choose(3 * GB).plan()
    assert alone.split is not None
    assert beside.split is not None
    assert alone.split.gpu_layers - 7 <= beside.split.gpu_layers < alone.split.gpu_layers
    assert (beside.n_ctx, beside.usual) == (alone.n_ctx, alone.usual)
    assert outlook is not None
    assert slower is not None
    assert outlook.rate is not None
    assert slower.rate is not None
    assert slower.rate < outlook.rate


def test_a_drafter_is_given_up_if_what_it_displaces_fits_nowhere(choose: Choose) -> None:
    planned, _ = choose().plan()
    assert planned.split is not None
    tight = replace(PLANNER, free=planned.split.beside.weight_bytes + 3 * GB)
    alone, _ = choose(planner=tight).plan()
    beside, _ = choose(10 * GB, planner=tight).plan()
    assert beside == alone


def test_a_whole_model_has_no_outlook(choose: Choose) -> None:
    planned, outlook = choose(planner=replace(PLANNER, gpus=(80 * GB,))).plan()
    assert planned.split is None
    assert outlook is None


def test_what_streams_beside_a_gpu_is_told(choose: Choose) -> None:
    planner = replace(PLANNER, free=8 * GB)
    planned, outlook = choose(2 * GB, streams=True, planner=planner).plan()
    assert planned.room == 2 * GB
    assert planned.lock_bytes
    assert outlook is not None
    assert outlook.streams
    assert "of 80 layers on the GPU; " in outlook.words
    assert "are read from disk for each token at 3 GB/s: about " in outlook.words


def test_without_a_known_rate_none_is_told(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose()
    monkeypatch.setattr(memory_choice, "gpu_bandwidth", lambda: None)
    _, outlook = choice.plan()
    assert outlook is not None
    assert "cannot be measured" in outlook.words
    assert not outlook.streams


MEGABYTE = 1_000_000


def test_it_is_what_is_read_from_disk_instead(
    demo_file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths.of_this_user()

    def extra(drafter: int) -> float | None:
        return displaced_seconds(demo_file, 1, 50 * MEGABYTE, drafter, paths)

    monkeypatch.setattr(pair_knowledge, "processor_bandwidth", lambda *_: Bandwidth(20e9, "given"))
    monkeypatch.setattr(pair_knowledge, "known_disk_speed", lambda *_: None)
    assert extra(10 * MEGABYTE) is None
    monkeypatch.setattr(pair_knowledge, "known_disk_speed", lambda *_: DiskSpeed(100e6, "given"))
    assert extra(0) == 0.0
    assert extra(10 * MEGABYTE) == pytest.approx(0.1, rel=0.1)
    assert extra(90 * MEGABYTE) == pytest.approx(0.5, rel=0.1)


def test_a_speedup_counts_it() -> None:
    costs = CostModel(Measured({1: 1.0, 16: 1.1}))
    alone = predicted_speedup(lambda _: 0.8, costs, 0.01)
    beside = predicted_speedup(lambda _: 0.8, costs_beside(costs, 1.0), 0.01)
    assert alone > beside > 0.5 * alone
