"""MLX: with every drafter the tokens and the law stay the target's own.

The chi-square test fails for a correct engine for one choice of seeds in 10,000; its are fixed.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.knowing import drafters

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.builtin_prompts import built_in_prompts
from app.drafting.drafter_model import open_drafter
from app.paths import Paths
from backends import mlx
from backends.base import Context, Model
from backends.mlx import device_sampling as device_verification
from backends.mlx.self_draft import derive
from decoding.checks.distribution_check import exact_distribution, greedy_reply, p_value, reply
from decoding.draft import Drafter
from decoding.drafters.cascade import Cascade
from decoding.drafters.cross_vocabulary.shared_tokens import AcrossVocabularies
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.settings import LossyRule
from tests.fixtures.corpora import corpus_of, document
from tests.fixtures.first_hit import FirstHit, first_hit_of
from tests.fixtures.replied import said

SmallMlx = Callable[..., Path]
FALSE_ALARM = 1e-4
ON_DEVICE = SamplingSettings(1.0, top_k=2, top_p=0.97, min_p=0.02)
SAMPLED = replace(ON_DEVICE, repeat_penalty=1.3)
N_CTX = 192
REPLIES = 250
LIMITS = Limits(32, frozenset())
TEXTS = ("the rain on the hill and the rain on the", "one two three, one two")

GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 32,
    "sliding_window_pattern": 2,
}
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "sliding": ("sliding", {}),
    "experts": ("experts", {}),
    "gemma3": ("plain", GEMMA3),
}


def other_vocabulary(folder: Path, place: Path) -> Path:
    """The same model with its tokens numbered otherwise."""
    shutil.copytree(folder, place)
    tokenizer = json.loads((place / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    count = len(vocabulary)
    for text, number in vocabulary.items():
        vocabulary[text] = (number + 7) % count
    for token in tokenizer["added_tokens"]:
        token["id"] = (token["id"] + 7) % count
    (place / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((place / "config.json").read_text())
    config["eos_token_id"] = (config["eos_token_id"] + 7) % count
    (place / "config.json").write_text(json.dumps(config))
    weights = mx.load(str(place / "model.safetensors"))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = mx.roll(weights[name], 7, axis=0)
    mx.save_safetensors(str(place / "model.safetensors"), weights)
    return place


@contextmanager
def drafted_by(
    way: str, target: Model, context: Context, paths: Paths, small_mlx: SmallMlx
) -> Iterator[Drafter]:
    """A drafter that proposes whether it pays or not: by --draft, or of another folder."""
    if way == "lookup":
        yield PromptLookup(min_match=1)
        return
    if way == "retrieval":
        read = [*target.tokenizer.encode(" ".join(TEXTS), special=False), *range(60)] * 2
        yield Retrieval(corpus_of(paths.retrieval, [document(1, read)]), min_match=1)
        return
    with ExitStack() as stack:
        if "self" in way:
            drafting = stack.enter_context(closing(drafters(way, target, context, paths)))
            assert drafting.missing == ""
            yield first_hit_of(drafting)
            return
        folder = small_mlx("plain", noise=0.05)
        if way == "other vocabulary":
            folder = other_vocabulary(folder, paths.models / "other")
        model = stack.enter_context(closing(mlx.load(folder)))
        found = open_drafter("small", model, target, N_CTX, is_own=False).drafter
        assert isinstance(found, AcrossVocabularies if way == "other vocabulary" else DraftModel)
        yield FirstHit([PromptLookup(min_match=2), found] if "," in way else [found])


WAYS = (
    "lookup",
    "retrieval",
    "self",
    "self:q8_0",
    "self:skip=1",
    "self:q8_0+skip=0",
    "lookup,self:q8_0",
    "cascade(lookup,self:q8_0)",
    "model",
    "lookup,model",
    "other vocabulary",
)
PAIRS = [("plain", way) for way in WAYS] + [
    (kind, way)
    for kind in ("sliding", "experts", "gemma3")
    for way in ("lookup,self:q8_0", "self:skip=1", "model")
]
OF_SEVERAL = [
    pytest.param("plain", way, marks=pytest.mark.slow)
    for way in ("cascade(self:skip=1,self:q8_0)", "vote(lookup,self:skip=1,self:q8_0)")
]


@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize(("kind", "way"), [*PAIRS, *OF_SEVERAL])
def test_same_token_ids_as_plain_decoding(kind: str, way: str, paths: Paths, small_mlx: SmallMlx):
    name, changes = TARGETS[kind]
    drafted = accepted = 0
    with (
        closing(mlx.load(small_mlx(name, **changes))) as target,
        closing(target.open(N_CTX)) as context,
        drafted_by(way, target, context, paths, small_mlx) as drafter,
    ):
        for text in TEXTS:
            prompt = target.tokenizer.encode(text, special=False)
            steps = list(greedy_reply(context, prompt, LIMITS, drafter))
            assert said(steps) == said(greedy_reply(context, prompt, LIMITS, None))
            drafted += sum(step.drafted for step in steps)
            accepted += sum(step.accepted for step in steps)
    assert drafted > 0
    if way == "self:q8_0" or (kind == "plain" and way in ("model", "other vocabulary")):
        assert accepted > 0, "nothing was accepted: the test proved nothing"


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize(
    ("count", "ways"),
    [
        (1, ["lookup,self:skip=12-13"]),
        pytest.param(2, ["lookup", "self:skip=13"], marks=pytest.mark.nightly),
    ],
    ids=["together", "each"],
)
def test_same_token_ids_on_the_bundled_model(
    demo_mlx_folder: Path, paths: Paths, count: int, ways: list[str]
):
    prompts = built_in_prompts()[:count]
    with closing(mlx.load(demo_mlx_folder)) as target, closing(target.open(512)) as context:
        tokens = [target.tokenizer.encode(one.text, special=False) for one in prompts]
        plain = [said(greedy_reply(context, prompt, LIMITS, None)) for prompt in tokens]
        for way in ways:
            with closing(drafters(way, target, context, paths)) as drafting:
                for prompt, expected in zip(tokens, plain, strict=True):
                    assert (
                        said(greedy_reply(context, prompt, LIMITS, first_hit_of(drafting)))
                        == expected
                    )


@pytest.fixture
def pair(small_mlx: SmallMlx) -> Iterator[tuple[Context, DraftModel]]:
    """A target and its own copy in four bits: they agree in part."""
    with closing(mlx.load(small_mlx("plain"))) as target, closing(derive(target, "", 4, ())) as own:
        model = DraftModel("self", own.open(64), n_vocab=target.info.n_vocab, max_draft=5)
        yield target.open(64), model


def test_a_lossy_rule_judges_what_the_device_drafted(pair: tuple[Context, DraftModel]) -> None:
    context, drafter = pair
    assert context.device_sampling is not None
    shares: list[float] = []
    for rule in (None, LossyRule("lenient", 100.0)):
        settings = SamplingSettings(1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1, lossy=rule)
        chain = FirstHit([drafter])
        events = list(generate(context, [5, 6, 7], settings, LIMITS, drafters=always(chain)))
        steps = [event for event in events if isinstance(event, Step) and event.drafted]
        drafted = sum(step.drafted for step in steps)
        assert drafted > 0
        shares.append(sum(step.accepted for step in steps) / drafted)
    assert shares[0] < 0.9 < shares[1]


def chance(
    pair: tuple[Context, Drafter], count: int, settings: SamplingSettings = SAMPLED
) -> float:
    """How likely a correct engine is to give replies as far from the law as these."""
    context, model = pair
    prompt = [40, 41, 42, 43, 40, 41]
    law = exact_distribution(context, prompt, settings)
    drawn: Counter[tuple[int, ...]] = Counter()
    drafted = 0
    for seed in range(count):
        outcome, steps = reply(context, prompt, replace(settings, seed=seed), model)
        drawn[outcome] += 1
        drafted += sum(step.drafted for step in steps)
        is_whole = settings.repeat_penalty == 1.0 and isinstance(model, DraftModel)
        assert all(step.on_device == is_whole for step in steps if step.drafted)
    assert drafted >= 4 * count
    return p_value(law, drawn)


@pytest.mark.parametrize("settings", [SAMPLED, ON_DEVICE], ids=["brought over", "on device"])
def test_sampled_replies_follow_the_target(
    settings: SamplingSettings, pair: tuple[Context, DraftModel]
):
    assert chance(pair, REPLIES, settings) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("of_devices", [False, True])
def test_sampled_replies_of_a_cascade_follow_the_target(of_devices: bool, small_mlx: SmallMlx):
    """A model verifies prompt lookup, or what another draws on its device, for the target."""
    with (
        closing(mlx.load(small_mlx("plain"))) as target,
        closing(derive(target, "", 4, ())) as own,
        closing(derive(target, "", None, (1,))) as smaller,
    ):
        n_vocab = target.info.n_vocab
        costs = CostModel(Measured({1: 1.0, 16: 1.1}))
        drafters = [ManagedDrafter(PromptLookup(min_match=1))]
        if of_devices:
            model = DraftModel("smaller", smaller.open(64), n_vocab=n_vocab)
            drafters = [ManagedDrafter(model, cost=DraftCost(0.01, 0.001))]
        below = Controller(drafters, costs, n_vocab, clock=lambda: 0.0)
        cascade = Cascade("cascade", own.open(64), below, costs, n_vocab=n_vocab, max_draft=3)
        assert chance((target.open(64), cascade), REPLIES) > FALSE_ALARM


def test_the_test_sees_a_rule_of_the_device_that_is_wrong_from_the_second_token_on(
    pair: tuple[Context, DraftModel], monkeypatch: pytest.MonkeyPatch
):
    """What stands ends at the first head that fails; of one drafted token both are the same."""

    def first_failure(passes: Any) -> Any:
        return mx.cumprod(passes.astype(mx.int32)).sum()

    monkeypatch.setattr(device_verification, "_longest", first_failure)
    assert chance(pair, REPLIES, ON_DEVICE) < FALSE_ALARM
