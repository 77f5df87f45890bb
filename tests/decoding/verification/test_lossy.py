"""Lossy rules by enumeration: exact at neutral strength, off by as much as they say otherwise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends.base import UsageError
from decoding.draft import Draft, HostLine, SampledLine
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import Distribution, SamplingSettings, point_mass
from decoding.sampling.settings import LOSSY_RULES, LossyRule, parse_lossy
from decoding.verification import target_pass
from decoding.verification.rules import TargetRows, Verdict
from decoding.verification.target_pass import verify_lossy
from tests.decoding.conftest import FakeContext, random_table
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.enumeration import (
    DENSE,
    N_VOCAB,
    SEEDS,
    SPARSE,
    Judge,
    Path,
    Prefix,
    Rows,
    SymbolicUniform,
    argmax,
    error,
    law_of,
    random_rows,
    sampled,
    speculative,
)
from tests.fixtures.forms import certain

USUAL = [LossyRule("typical", 0.09), LossyRule("ears", 0.1), LossyRule("lenient", 2.0)]
NEUTRAL = [LossyRule("ears", 0.0), LossyRule("lenient", 1.0)]
GREEDY = SamplingSettings(temperature=0.0)


class Comparable(SymbolicUniform):
    """A symbolic number that is compared as it is."""

    def __le__(self, bound: float) -> bool:
        return self.is_at_most(bound)


@pytest.fixture
def enumerated(symbolic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a Path stand for the random numbers of lossy rules too."""
    monkeypatch.setattr(target_pass, "uniform", Comparable)


def by(rule: LossyRule) -> Judge:
    def judge(target: TargetRows, draft: HostLine, path: Any) -> Verdict:
        return verify_lossy(target, draft, rule, path)

    return judge


def pair(seed: int, settings: SamplingSettings = DENSE) -> tuple[Rows, Rows]:
    return random_rows(seed, settings), random_rows(seed + 100, DENSE)


@pytest.mark.usefixtures("enumerated")
@pytest.mark.parametrize("rule", NEUTRAL, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_neutral_strength_a_rule_is_the_exact_one(seed: int, rule: LossyRule) -> None:
    assert rule.is_neutral
    for settings in (DENSE, SPARSE):
        target, q_draft = pair(seed, settings)
        assert error(target, sampled(q_draft, 2), by(rule)) < 1e-9
        assert error(target, argmax(q_draft, 2), by(rule)) < 1e-9


@pytest.mark.usefixtures("enumerated")
@pytest.mark.parametrize("rule", USUAL, ids=str)
@pytest.mark.parametrize("draft_of", [sampled, argmax])
def test_a_rule_leaves_the_law_of_the_target(rule: LossyRule, draft_of: Callable[..., Any]) -> None:
    assert not rule.is_neutral
    found = [error(target, draft_of(q_draft, 2), by(rule)) for target, q_draft in map(pair, SEEDS)]
    assert max(found) > 0.02


@pytest.mark.usefixtures("enumerated")
@pytest.mark.parametrize("name", ["ears", "lenient"])
def test_more_strength_is_farther_off(name: str) -> None:
    strengths = {"ears": (0.0, 0.1, 0.3), "lenient": (1.0, 1.2, 2.0)}[name]
    for target, q_draft in map(pair, SEEDS):
        errors = [
            error(target, sampled(q_draft, 2), by(LossyRule(name, strength)))
            for strength in strengths
        ]
        assert errors[0] < 1e-9 < errors[1] < errors[2]


@pytest.mark.usefixtures("enumerated")
def test_ears_is_off_by_no_more_than_its_strength_a_token() -> None:
    """A token's mass moves by at most strength * (1 - max p), and max p is at least a third."""
    for target, q_draft in map(pair, SEEDS):
        assert error(target, sampled(q_draft, 3), by(LossyRule("ears", 0.1))) < 3 * 0.1 * 2 / 3


@pytest.mark.usefixtures("enumerated")
@pytest.mark.parametrize("rule", USUAL, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_temperature_0_each_gives_the_plain_reply(seed: int, rule: LossyRule) -> None:
    target = random_rows(seed, GREEDY)
    for q_draft in (random_rows(seed + 100, DENSE), random_rows(seed + 100, GREEDY)):
        assert error(target, sampled(q_draft, 2), by(rule)) < 1e-9
        assert error(target, argmax(q_draft, 2), by(rule)) < 1e-9


@pytest.mark.usefixtures("enumerated")
@pytest.mark.parametrize("rule", [*USUAL, LossyRule("ears", 1.0), LossyRule("lenient", 100.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_settings_leave_out_is_never_said(seed: int, rule: LossyRule) -> None:
    target = random_rows(seed, SPARSE)

    def impossible(prefix: Prefix) -> Distribution:
        (token,) = set(range(N_VOCAB)) - set(target(prefix).ids.tolist())
        return point_mass(token)

    said = law_of(speculative(target, sampled(impossible, 2), by(rule)))
    for text, chance in said.items():
        likelihoods = [target(text[:i]).of(token) for i, token in enumerate(text)]
        assert chance == 0.0 or all(likelihoods)


def kept(rule: str, p: list[float], q: list[float], token: int) -> float:
    """The probability that a rule keeps one drafted token."""
    parsed = parse_lossy(rule)
    assert parsed is not None
    p_target, q_draft = (Distribution(np.arange(3), np.array(row)) for row in (p, q))
    draft = SampledLine((token,), (q_draft,))
    total, paths = 0.0, [()]
    while paths:
        path = Path(paths.pop())
        verdict = by(parsed)([p_target, p_target], draft, path)
        total += path.probability * verdict.accepted
        paths += path.untaken
    return total


@pytest.mark.usefixtures("enumerated")
def test_how_often_each_rule_keeps_a_token() -> None:
    p, q = [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]
    assert kept("ears:0.5", p, q, 2) == pytest.approx(0.1 / 0.6 + 0.5 * 0.4)
    assert kept("lenient:3", p, q, 2) == pytest.approx(3 * 0.1 / 0.6)
    assert kept("lenient:100", p, q, 2) == 1.0
    entropy = -sum(share * np.log(share) for share in p)
    border = 0.3 * np.exp(-entropy)  # 0.12, above 0.09: the other bound counts
    assert border > 0.09
    assert kept("typical", p, q, 2) == 1.0
    flat = [0.4, 0.35, 0.25]
    assert kept("typical:0.5", flat, q, 2) == 1.0
    assert kept("typical:1", flat, q, 2) == 0.0


@pytest.mark.usefixtures("enumerated")
def test_typical_puts_a_typical_token_in_the_place_of_another() -> None:
    p = Distribution(np.arange(3), np.array([0.7, 0.28, 0.02]))
    draft = SampledLine((2,), (point_mass(2),))
    said: dict[int, float] = {}
    paths: list[Prefix] = [()]
    while paths:
        path = Path(paths.pop())
        verdict = by(LossyRule("typical", 0.09))([p, p], draft, path)
        assert verdict.accepted == 0
        said[verdict.next_token] = said.get(verdict.next_token, 0.0) + path.probability
        paths += path.untaken
    assert said == pytest.approx({0: 0.7 / 0.98, 1: 0.28 / 0.98})


class Impossible(IdleDrafter):
    """Drafts what the model is least likely to say."""

    name = "impossible"

    def __init__(self, context: FakeContext) -> None:
        self._context = context

    def propose(self, history: Any, limit: int, keep_on: Any = None) -> Draft:
        token = int(self._context.row(history).argmin())
        return certain((token,)[:limit], self.name)


def reply(settings: SamplingSettings) -> tuple[int, ...]:
    context = FakeContext(random_table(3))
    drafter, limits = Impossible(context), Limits(40, frozenset())
    events = generate(context, [1, 2], settings, limits, drafters=always(drafter))
    return tuple(token for event in events for token in getattr(event, "tokens", ()))


def test_a_reply_is_judged_by_the_rule_of_its_settings() -> None:
    exact = SamplingSettings(1.0, top_k=0, top_p=1.0, min_p=0.0, seed=4)
    with_rule = SamplingSettings(1.0, 0, 1.0, 0.0, seed=4, lossy=LossyRule("lenient", 100.0))
    assert reply(exact) != reply(with_rule)
    neutral = SamplingSettings(1.0, 0, 1.0, 0.0, seed=4, lossy=LossyRule("ears", 0.0))
    assert reply(exact) == reply(neutral)


def test_at_temperature_0_and_neutral_strength_no_rule_is_in_effect() -> None:
    rule = LossyRule("ears", 0.1)
    assert SamplingSettings(lossy=rule).lossy_in_effect == rule
    assert SamplingSettings(temperature=0.0, lossy=rule).lossy_in_effect is None
    assert SamplingSettings(lossy=LossyRule("lenient", 1.0)).lossy_in_effect is None


@pytest.mark.parametrize("name", LOSSY_RULES)
def test_what_is_written_is_read_again(name: str) -> None:
    usual = parse_lossy(name)
    assert usual is not None
    assert usual in USUAL
    assert parse_lossy(str(usual)) == usual
    assert parse_lossy(f" {name.upper()}:1 ") == LossyRule(name, 1.0)


@pytest.mark.parametrize("text", ["off", "OFF", " off "])
def test_off_is_no_rule(text: str) -> None:
    assert parse_lossy(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "typical, ears, lenient and off"),
        ("ear", "typical, ears, lenient and off"),
        (":0.1", "typical, ears, lenient and off"),
        ("off:1", "typical, ears, lenient and off"),
        ("ears:much", "much is not a number"),
        ("ears:-0.1", "at least 0, at most 1"),
        ("ears:nan", "at least 0, at most 1"),
        ("lenient:0.5", "at least 1, at most 100"),
        ("typical:0", "at least 0.001, at most 1"),
        ("typical:inf", "at least 0.001, at most 1"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_lossy(text)
