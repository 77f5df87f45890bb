"""A chain of drafters puts what its free ones say side by side, as a tree."""

from decoding.drafters.chain import Chain
from decoding.lossy_rule import LossyRule
from decoding.sampler import Sampler
from decoding.sampling import SamplingSettings
from decoding.shape import Shape
from tests.fixtures.drafters import Rehearsed
from tests.fixtures.forms import parents_in

TEXT = [0, 10, 20, 30, 40, 50]
ODD, EVEN = Rehearsed("odd", TEXT, 1), Rehearsed("even", TEXT, 2)


class Dear(Rehearsed):
    is_free = False


def test_what_two_free_drafters_say_is_one_tree() -> None:
    draft = Chain([ODD, EVEN], branches=4).propose([0], 9)
    assert draft.shape is Shape.TREE
    assert draft.width == 2
    assert draft.drafter == "even+odd"
    pairs = zip(draft.tokens, parents_in(draft), strict=True)
    first = [token for token, parent in pairs if parent < 0]
    assert sorted(first) == [10, 11]
    assert len(draft) == 8


def test_a_tree_has_no_more_tokens_than_its_room() -> None:
    assert len(Chain([ODD, EVEN], branches=4).propose([0], 3)) == 3


def test_two_that_agree_are_one_line() -> None:
    draft = Chain([EVEN, Rehearsed("same", TEXT, 2)], branches=4).propose([0], 9)
    assert (draft.shape, draft.drafter, len(draft)) == (Shape.LINE, "even", 4)


def test_a_drafter_that_is_not_free_drafts_alone() -> None:
    dear = Dear("dear", TEXT, 3)
    assert Chain([dear, ODD, EVEN], branches=4).propose([0], 9).drafter == "dear"
    assert Chain([ODD, dear], branches=4).propose([0], 9).drafter == "odd"


def test_those_that_are_not_free_take_turns() -> None:
    """Lines and trees of one model always have something to say, and all are to be checked."""
    lines, trees = Dear("lines", TEXT, 3), Dear("trees", TEXT, 4)
    chain = Chain([lines, trees])
    assert [chain.propose([0], 9).drafter for _ in range(3)] == ["lines", "trees", "lines"]
    silent = Rehearsed("silent", [], 2)
    chain = Chain([silent, lines, trees])
    assert [chain.propose([0], 9).drafter for _ in range(3)] == ["lines", "trees", "lines"]


def test_lines_alone_where_no_tree_can_be_verified() -> None:
    assert Chain([ODD, EVEN]).propose([0], 9).shape is Shape.LINE


def test_lines_alone_under_a_lossy_rule() -> None:
    chain = Chain([ODD, EVEN], branches=4)
    chain.begin([0], Sampler(SamplingSettings(1.0, lossy=LossyRule("lenient", 2.0))))
    assert chain.propose([0], 9).shape is Shape.LINE
    chain.begin([0], Sampler(SamplingSettings(1.0)))
    assert chain.propose([0], 9).shape is Shape.TREE
