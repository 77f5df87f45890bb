"""Drafting across vocabularies is exact: every outcome of the real drafters is enumerated.

The drafts come from the drafters themselves, on a table of numbers, so that every draw and every
decision to stop or to spell is theirs.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import Drafter, HostLine, SampledLine
from decoding.drafters.cross_vocabulary import shared_tokens
from decoding.drafters.cross_vocabulary.shared_tokens import AcrossVocabularies, TextLevel
from decoding.drafters.cross_vocabulary.vocabularies import (
    Follower,
    Retokenizer,
    SharedVocabulary,
    Speller,
    TokenBytes,
)
from decoding.sampling.distribution import Distribution, SamplingSettings, warp
from decoding.sampling.sampler import Sampler
from tests.fixtures import enumeration as exact
from tests.fixtures.forms import line_of
from tests.fixtures.loop_law import sampler_along
from tests.fixtures.tokenizers import ToyTokenizer

pytestmark = pytest.mark.usefixtures("symbolic")

OURS = [b"a", b"b", b"ab", b"c", b""]
THEIRS = [b"c", b"b", b"a", b"ba", b"bca", b"", b""]
END, CONTROL = 5, 6
PROMPT = (0, 2, 1)
SETTINGS = [
    SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    SamplingSettings(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0),
    SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.5),
]
SEEDS = range(3)
MakeDrafter = Callable[..., Drafter]


@pytest.fixture
def make(table: Callable, fake_context: Callable, monkeypatch: pytest.MonkeyPatch) -> MakeDrafter:
    """A drafter on a random table: make(seed, kind, n_ctx=64, says=None)."""
    monkeypatch.setattr(shared_tokens, "uniform", exact.SymbolicUniform)
    target, drafter = ToyTokenizer(OURS, eos=4), ToyTokenizer(THEIRS, eos=5)
    ours, theirs = TokenBytes.of(target), TokenBytes.of(drafter)
    shared = SharedVocabulary.of(target, ours, drafter, theirs)
    speller = Speller(target, ours)

    def drafter_of(
        seed: int, kind: type = AcrossVocabularies, n_ctx: int = 64, says: int | None = None
    ) -> Drafter:
        logits = table(seed, len(THEIRS))
        if says is not None:
            logits[..., says] = 99.0
        context = fake_context(logits, n_ctx=n_ctx)
        retokenizer = Retokenizer(ours, Speller(drafter, theirs), {4: [5]})
        follower = Follower(context, retokenizer)
        if kind is TextLevel:
            return TextLevel("text", follower, shared, theirs, speller, max_draft=2)
        ends = target.end_tokens
        return AcrossVocabularies(
            "across", follower, shared, theirs, speller, end_tokens=ends, max_draft=2
        )

    return drafter_of


def target_rows(seed: int, settings: SamplingSettings) -> exact.Rows:
    def row(prefix: Sequence[int]) -> Distribution:
        random = np.random.default_rng([seed, len(prefix), *prefix])
        logits = random.normal(size=len(OURS), scale=1.5).astype(np.float32)
        return warp(logits, settings, [*PROMPT, *prefix])

    return row


def sampler_on(path: exact.Path, settings: SamplingSettings) -> Sampler:
    """Draws of a drafter are choices of a path."""
    return sampler_along(cast("Any", path), settings)


GREEDY = sampler_on(exact.Path(), SamplingSettings(temperature=0.0))


def drafts(drafter: Drafter, settings: SamplingSettings, seen: list[HostLine]) -> exact.DraftOf:
    """What the drafter proposes after a prefix, its draws taken from a path."""

    def draft_of(prefix: exact.Prefix, path: exact.Path) -> HostLine:
        history = [*PROMPT, *prefix]
        drafter.begin(history, sampler_on(path, settings))
        seen.append(line_of(drafter.propose(history, 2)))
        return seen[-1]

    return draft_of


class Allowing:
    """A constraint that allows one token of the target."""

    length = 0

    def __init__(self, token: int) -> None:
        self._mask = np.arange(len(OURS)) == token

    def allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        del drafted
        return self._mask


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
def test_a_constraint_on_the_targets_tokens_is_none_on_the_drafters(
    make: MakeDrafter, kind: type
) -> None:
    settings, drafted = GREEDY.settings, list[list[tuple[int, ...]]]()
    for constraint in ((), (len(PROMPT), Allowing(2))):
        drafted.append([])
        for seed in range(4):
            sampler = sampler_along(exact.Path(), settings, *constraint)
            drafter = make(seed, kind)
            drafter.begin(PROMPT, sampler)
            drafted[-1].append(drafter.propose(PROMPT, 2).tokens)
    assert drafted[0] == drafted[1]
    assert any(drafted[0])


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_draft_leaves_the_law_of_the_target(
    make: MakeDrafter, seed: int, settings: SamplingSettings, kind: type
):
    seen: list[HostLine] = []
    draft_of = drafts(make(seed + 100, kind), settings, seen)
    assert exact.error(target_rows(seed, settings), draft_of) < 1e-9
    assert any(len(draft.tokens) == 2 for draft in seen)


@pytest.mark.slow
def test_shared_draws_and_spelled_tokens_are_both_met(make: MakeDrafter):
    """The enumeration above is worth something only if it goes both ways."""
    seen: list[HostLine] = []
    for seed in SEEDS:
        draft_of = drafts(make(seed + 100), SETTINGS[0], seen)
        exact.error(target_rows(seed, SETTINGS[0]), draft_of)
    laws = [law for draft in seen if isinstance(draft, SampledLine) for law in draft.distributions]
    assert any(len(law.ids) == 1 for law in laws)
    assert any(len(law.ids) > 1 for law in laws)


def claimed(draft_of: exact.DraftOf, claim: Callable[[Distribution], Distribution]):
    """The same tokens, handed on with other distributions."""

    def claiming(prefix: exact.Prefix, path: exact.Path) -> HostLine:
        draft = draft_of(prefix, path)
        if not isinstance(draft, SampledLine):
            return draft
        return SampledLine(draft.tokens, tuple(map(claim, draft.distributions)))

    return claiming


@pytest.mark.parametrize("seed", SEEDS)
def test_control_a_distribution_not_renormalised_is_found(make: MakeDrafter, seed: int):
    draft_of = drafts(make(seed + 100), SETTINGS[0], [])
    wrong = claimed(draft_of, lambda law: Distribution(law.ids, 0.8 * law.probabilities))
    assert exact.error(target_rows(seed, SETTINGS[0]), wrong) > 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_control_a_spelled_token_that_passes_for_a_drawn_one_is_found(make: MakeDrafter, seed: int):
    draft_of = drafts(make(seed + 100), SETTINGS[0], [])
    spread = Distribution(np.arange(len(OURS)), np.full(len(OURS), 1 / len(OURS)))
    wrong = claimed(draft_of, lambda law: spread if len(law.ids) == 1 else law)
    assert exact.error(target_rows(seed, SETTINGS[0]), wrong) > 0.01


@pytest.mark.parametrize("seed", SEEDS)
def test_control_stopping_by_the_token_that_was_drawn_is_found(make: MakeDrafter, seed: int):
    draft_of = drafts(make(seed + 100), SETTINGS[0], [])
    wrong = exact.stopping(draft_of, keep=False)
    assert exact.error(target_rows(seed, SETTINGS[0]), wrong) > 0.01


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
def test_a_full_context_ends_a_draft_and_then_there_is_none(make: MakeDrafter, kind: type):
    drafter = make(7, kind, n_ctx=8, says=0)
    lengths: list[int] = []
    refusals: list[str] = []
    for length in (*range(1, 12), 3):
        drafter.begin([0] * length, GREEDY)
        lengths.append(len(drafter.propose([0] * length, 2)))
        refusals.append(drafter.refusal([0] * length))  # known once the text was followed
    assert max(lengths) == lengths[-1] == 2
    assert lengths[-5:-1] == [0, 0, 0, 0]
    full = "full: its context is 8 tokens"
    assert refusals == ["" if length else full for length in lengths]


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
def test_a_draft_is_as_long_as_it_is_wanted(make: MakeDrafter, kind: type):
    drafter = make(3, kind)
    drafter.begin(PROMPT, GREEDY)
    whole = drafter.propose(PROMPT, 2)
    assert drafter.propose(PROMPT, 0).tokens == ()
    asked: list[float] = []

    def once(confidence: float, evidence: int) -> bool:
        asked.append(confidence)
        return False

    assert drafter.propose(PROMPT, 2, once).tokens == whole.tokens[:1]
    assert len(asked) == 1


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
def test_what_was_drafted_and_accepted_counts_as_read(make: MakeDrafter, kind: type):
    drafter = make(3, kind)
    drafter.begin(PROMPT, GREEDY)
    assert drafter.backlog(PROMPT) == 3
    draft = drafter.propose(PROMPT, 2)
    assert drafter.backlog([*PROMPT, *draft.tokens, 0]) == 1
    assert drafter.backlog([*PROMPT, 3, 3, 3]) >= 2


@pytest.mark.parametrize("kind", [AcrossVocabularies, TextLevel])
@pytest.mark.parametrize(
    ("says", "drafted"), [(0, (3, 3)), (4, (1, 3)), (END, (4,)), (CONTROL, ())]
)
def test_a_greedy_draft_is_the_likeliest_text_in_the_targets_tokens(
    make: MakeDrafter, kind: type, says: int, drafted: tuple[int, ...]
):
    """A control token says nothing; the draft that it leaves empty was paid for and has a name."""
    drafter = make(3, kind, says=says)
    drafter.begin(PROMPT, GREEDY)
    draft = drafter.propose(PROMPT, 2)
    assert draft.tokens == drafted
    assert draft.drafter == drafter.name
