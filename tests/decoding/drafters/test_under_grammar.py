"""Under a grammar a proposal's tokens count by what the grammar tells of them."""

from collections.abc import Sequence

from decoding.constraint.constraint import Evidence
from decoding.draft import Draft, KeepOn
from decoding.drafters.forced_tokens import with_evidence
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain
from tests.fixtures.pieces import END, Pieces, constraint_on

A, B, COMMA, STOP = range(4)
PIECES = Pieces([b"a", b"b", b",", END])
ROWS = "([ab]{3},b,)*"
"""Three free letters, and then a certain text."""

ROW = [A, A, A, COMMA, B, COMMA]
CLASS = 9


class Repeats(IdleDrafter):
    """Sure of the same row each time."""

    name = "repeats"
    is_free = True

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on
        start = (len(history) - 1) % len(ROW)
        tokens = (ROW * 4)[start : start + limit]
        return certain(tokens, self.name, 0.97, CLASS)


def test_only_what_the_grammar_tells_nothing_of_keeps_its_own_evidence() -> None:
    draft = certain((A,) * 4, "lookup", 0.9, CLASS)
    assert with_evidence(draft, [Evidence.FURTHER] * 4) is draft
    evidence = [Evidence.FURTHER, Evidence.KNOWN, Evidence.FIRST, Evidence.DIFFERENT]
    judged = with_evidence(draft, evidence)
    assert judged.tokens == draft.tokens
    assert judged.evidence[0] == CLASS
    assert CLASS not in judged.evidence[1:]
    assert len(set(judged.evidence)) == 4
    assert judged.confidence[0] == 0.9 < judged.confidence[1]
    assert max(judged.confidence[2:]) < 0.9


def test_an_unsure_token_is_no_surer_than_its_drafter_says() -> None:
    draft = certain((A,), "lookup", 0.1, CLASS)
    assert with_evidence(draft, [Evidence.SECOND]).confidence == (0.1,)


def drafted(*, of_reply: bool) -> list[int]:
    """Lengths of the drafts of a reply whose rows all begin with another letter than drafted."""
    controller = Controller([], CostModel(Measured({1: 1.0, 16: 8.5})), PIECES.n_vocab, lambda: 0.0)
    managed = ManagedDrafter(Repeats())
    if of_reply:
        controller.add([managed])
    else:
        controller = controller.of([managed])
    sampler = Sampler(SamplingSettings(0.0), 1, constraint_on(PIECES, ROWS))
    history, reply = [COMMA], [B, *ROW[1:]] * 20
    controller.begin(history, sampler)
    lengths: list[int] = []
    while (at := len(history) - 1) < len(reply) - 1:
        controller.commit(history)
        sampler.follow(history)
        draft = controller.propose(history, 12)
        rest = reply[at:]
        right = [mine == its for mine, its in zip(draft.tokens, rest[:-1], strict=False)]
        accepted = [*right, False].index(False)
        lengths.append(len(draft))
        seconds = controller.costs.seconds(1 + len(draft))
        tokens = tuple(rest[: accepted + 1])
        step = Step(tokens, draft.drafter, len(draft), accepted, 0.0, seconds, seconds, 0.0)
        controller.observe(step)
        history.extend(tokens)
    return lengths


def test_a_draft_ends_where_values_turn_out_otherwise() -> None:
    """By the drafter's own evidence five in six of its tokens are right, wherever they are."""
    with_grammar, alone = drafted(of_reply=False), drafted(of_reply=True)
    assert with_grammar[-10:] == [5] * 10
    assert 5 not in alone
