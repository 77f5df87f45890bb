"""What drafters are, in a few words: the list cuts what is too long for its column."""

from app.drafting.choose.drafter_info import DrafterInfo, Kind
from app.drafting.choose.drafter_words import nature
from app.drafting.drafter_spec import JACOBI, LOOKAHEAD


def test_similar_drafters_differ_in_their_first_words() -> None:
    first = [
        nature(DrafterInfo(name, Kind.LOOKUP, is_compatible=True, why=""))
        for name in (JACOBI, LOOKAHEAD)
    ]
    assert first[0].split()[0] != first[1].split()[0]
    assert all(len(words) <= 31 for words in first)
