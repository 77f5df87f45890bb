"""At temperature 0 every drafter gives the token ids of plain decoding, on a real model."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.engine.session_drafters import build
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import CacheType, Context, Model
from decoding.checks.distribution_check import branch_difference, divergences
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.events import Step
from decoding.generation import Limits
from decoding.sampling.distribution import SamplingSettings
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from scripts.prompts import tokenized
from tests.fixtures.corpora import corpus_of, document
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said
from tests.fixtures.rounding import bound, is_plain

GREEDY = SamplingSettings(temperature=0.0)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    root = tmp_path_factory.mktemp("specchat")
    return Paths(root / "config", root / "data", root / "cache")


@pytest.fixture(scope="module")
def prompts(demo: Model) -> list[list[int]]:
    """One of each of six kinds."""
    found = tokenized(demo)[::2]
    assert len({kind for kind, _ in found}) == len(found) == 6
    return [prompt for _, prompt in found]


@pytest.fixture(scope="module", params=[40, pytest.param(96, marks=pytest.mark.nightly)])
def limits(demo: Model, request: pytest.FixtureRequest) -> Limits:
    return Limits(request.param, demo.tokenizer.end_tokens)


@pytest.fixture(scope="module")
def plain(context: Context, prompts: list[list[int]], limits: Limits) -> list[list[int]]:
    return [said(replied(context, prompt, GREEDY, limits, None)) for prompt in prompts]


def _assert_plain(
    context: Context, prompt: list[int], steps: list[Step], expected: list[int]
) -> None:
    """The reply is the expected one; but for near-ties after branches, which disorder a cache."""
    found = said(steps)
    if any(step.branch is not None for step in steps):
        allowed = 2 * branch_difference(context, prompt)
        assert all(one.margin <= allowed for one in divergences(context, prompt, found))
    else:
        assert is_plain(context, prompt, found, expected)


def _place(demo: Model, context: Context, paths: Paths) -> DrafterEnvironment:
    return DrafterEnvironment(
        demo, TargetContext(demo, context), paths, None, None, lambda text: None
    )


def _spec(kind: str, demo: Model, paths: Paths) -> str:
    """The --draft value; a drafter model is a copy of eight bits without two layers."""
    if kind != "model":
        return kind
    recipe = Recipe.parse("q8_0+skip=12-13")
    made = SelfDrafts(paths.self_drafts).get(demo.info, recipe, lambda done, total: None)
    paths.models.mkdir(parents=True, exist_ok=True)
    named = paths.models / "smaller.gguf"
    if not named.exists():
        named.hardlink_to(made)
    return "smaller"


@pytest.mark.parametrize(
    "kind",
    [
        "lookup,self",
        pytest.param("lookup,ngram", marks=pytest.mark.slow),
        pytest.param("model", marks=pytest.mark.slow),
        pytest.param("cascade(lookup,self)", marks=pytest.mark.slow),
        pytest.param("vote(lookup,self)", marks=pytest.mark.slow),
    ],
)
def test_same_token_ids_as_plain_decoding(
    kind: str,
    demo: Model,
    context: Context,
    paths: Paths,
    prompts: list[list[int]],
    plain: list[list[int]],
    limits: Limits,
):
    spec = draft_spec.parse(_spec(kind, demo, paths), paths)
    accepted = 0
    with closing(build(spec, _place(demo, context, paths))) as drafting:
        assert drafting.missing == ""
        for prompt, expected in zip(prompts, plain, strict=True):
            steps = replied(context, prompt, GREEDY, limits, first_hit_of(drafting))
            _assert_plain(context, prompt, steps, expected)
            accepted += sum(step.accepted for step in steps)
    assert accepted > 0, "nothing was accepted: the test proved nothing"


@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("auto", marks=pytest.mark.slow),
        pytest.param("cascade(lookup,self)", marks=pytest.mark.slow),
    ],
)
def test_the_controller_gives_the_same_token_ids(
    kind: str,
    demo: Model,
    context: Context,
    prompts: list[list[int]],
    plain: list[list[int]],
    limits: Limits,
    tmp_path: Path,
):
    paths = Paths(tmp_path / "config", tmp_path / "data", tmp_path / "cache")
    spec = draft_spec.parse(kind, paths)
    drafted = 0
    with closing(build(spec, _place(demo, context, paths))) as drafting:
        for prompt, expected in zip(prompts, plain, strict=True):
            steps = replied(context, prompt, GREEDY, limits, drafting.controller)
            _assert_plain(context, prompt, steps, expected)
            drafted += sum(step.drafted for step in steps)
    assert drafted > 0


@pytest.mark.slow
@pytest.mark.usefixtures("widths_are_kept")
def test_passes_that_are_filled_up_give_the_same_token_ids(
    demo: Model,
    context: Context,
    prompts: list[list[int]],
    plain: list[list[int]],
    limits: Limits,
    tmp_path: Path,
):
    """By a clock that ticks alike on every machine: where drafts take long, few are made."""
    paths = Paths(tmp_path / "config", tmp_path / "data", tmp_path / "cache")
    spec, ticks = draft_spec.parse("lookup,ngram,self", paths), count()
    found: list[Step] = []
    with closing(build(spec, _place(demo, context, paths))) as drafting:
        for prompt, expected in zip(prompts, plain, strict=True):
            steps = replied(
                context, prompt, GREEDY, limits, drafting.controller, lambda: 0.01 * next(ticks)
            )
            _assert_plain(context, prompt, steps, expected)
            found += steps[1:]
    assert {step.passed for step in found} <= {1, 2, 4, 8, 16}
    assert any(step.window_tokens for step in found)
    assert sum(step.accepted for step in found) > 0


@pytest.mark.slow
def test_retrieval_of_the_same_answers_gives_the_same_token_ids_in_few_steps(
    context: Context,
    prompts: list[list[int]],
    plain: list[list[int]],
    limits: Limits,
    tmp_path: Path,
):
    answered = list(zip(prompts, plain, strict=True))[:4]
    texts = [document(n, [*prompt, *answer]) for n, (prompt, answer) in enumerate(answered)]
    corpus = corpus_of(tmp_path, texts)
    steps_taken = 0
    for prompt, expected in answered:
        steps = replied(context, prompt, GREEDY, limits, Retrieval(corpus))
        assert is_plain(context, prompt, said(steps), expected)
        steps_taken += len(steps)
    assert steps_taken < sum(len(answer) for _, answer in answered) / 4
    corpus.close()


@pytest.mark.slow
def test_a_drafter_equal_to_the_target_is_always_accepted(
    demo: Model, context: Context, prompts: list[list[int]], plain: list[list[int]], limits: Limits
):
    """The target drafts for itself: everything is accepted, and the caches never drift apart."""
    own = demo.open(1024)
    drafter = DraftModel("itself", own, n_vocab=demo.info.n_vocab, max_draft=5)
    steps = replied(context, prompts[0], GREEDY, limits, drafter)
    own.close()
    assert is_plain(context, prompts[0], said(steps), plain[0])
    drafted = sum(step.drafted for step in steps[:-1])
    accepted = sum(step.accepted for step in steps[:-1])
    assert accepted >= bound(1.0, 0.8) * drafted > 0, "near-ties alone turn a token, on a card"


@pytest.mark.slow
def test_several_threads_change_nothing(
    llamacpp: ModuleType, demo_file: Path, prompts: list[list[int]]
):
    """All else runs on one, and who uses it has several."""
    limits, prompt = Limits(32, frozenset()), prompts[2]  # a text to copy
    with closing(llamacpp.load(demo_file, threads=2)) as model, closing(model.open(512)) as context:
        assert model.info.threads == 2
        plain = replied(context, prompt, GREEDY, limits, None)
        drafted = replied(context, prompt, GREEDY, limits, PromptLookup())
        assert is_plain(context, prompt, said(drafted), said(plain))
    assert sum(step.accepted for step in drafted) > 0


@pytest.fixture(scope="module", params=[CacheType.Q8_0, CacheType.Q4_0])
def cached(
    llamacpp: ModuleType, demo_file: Path, request: pytest.FixtureRequest
) -> Iterator[Model]:
    with closing(llamacpp.load(demo_file, threads=1, cache_type=request.param)) as loaded:
        yield loaded


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [32, pytest.param(96, marks=pytest.mark.nightly)])
def test_with_a_quantized_cache_it_is_plain_decoding_with_the_same_cache(
    cached: Model, tokens: int
) -> None:
    limits = Limits(tokens, cached.tokenizer.end_tokens)
    with closing(cached.open(2048)) as context:
        for _, prompt in tokenized(cached)[::4]:
            plain, found = (
                said(replied(context, prompt, GREEDY, limits, drafter))
                for drafter in (None, PromptLookup())
            )
            assert is_plain(context, prompt, found, plain)
