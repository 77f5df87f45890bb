"""What is held beside a model that streams, and what is claimed of its speed."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.drafting import draft_spec
from app.drafting.choose import memory_choice as stream_choice
from app.drafting.choose.memory_choice import StreamContenders, planned_stream
from app.engine.session_opening import open_session
from app.learned.acceptance_memory import AcceptanceMemory
from app.learned.speeds import PlainReplies
from app.loading.placement import stream_plan
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Model
from backends.engines.model_loading import load
from backends.streaming.disk_speed import DiskSpeed
from backends.streaming.weight_plan import STREAMED_CHUNK
from decoding.estimation.acceptance import ANY_POSITION, TRAINED_PRIOR, Acceptance
from decoding.estimation.cost import Measured
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import CHUNK, ModelFacts, bill, compute_bytes, facts_of, host_bytes
from models.reference import Reference
from models.self_draft.recipe import Recipe, weights_made
from models.self_draft.self_draft_store import SelfDrafts
from tests.fixtures.tiny.pairs import Pair

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks that read a kilobyte a second."""
    monkeypatch.setattr(stream_choice, "disk_speed", lambda *_: DiskSpeed(1e3, "measured"))


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
    free = 64_000_000 + beside + needed
    alone = stream_plan("target", facts, 512, 512, free).lock_bytes
    planned, outlook = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert (planned.room, planned.lock_bytes) == (needed, (alone or 0) - needed)
    assert outlook.share.streamed > 0
    assert outlook.rate is not None
    assert outlook.drafted is None or is_measured
    without = draft_spec.parse("off", paths, reference)
    planned, _ = planned_stream(reference, facts, without, options, paths, 512, free)
    assert (planned.room, planned.lock_bytes) == (0, alone)


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
    free = 64_000_000 + 2 * (facts.attention.cache_bytes(512) + working(facts, 512))
    planned, _ = planned_stream(reference, facts, spec, options, paths, 512, free)
    assert planned.room == facts.attention.cache_bytes(512) + working(facts, CHUNK)


def test_without_a_measured_disk_no_speed_is_claimed(
    tiny_llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_choice, "disk_speed", lambda *_: None)
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
    free = 64_000_000 + facts.attention.cache_bytes(512) + working(facts)
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
