"""GBNF is read as llama.cpp reads it, and matched without a text lost."""

from collections.abc import Sequence

import pytest

from backends.base import UsageError
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind
from tests.fixtures.gbnf_rows import REFUSED, REFUSED_BY_US, ROWS
from tests.fixtures.pieces import END, Pieces, constraint_on

BYTES = Pieces([*(bytes([byte]) for byte in range(256)), END])
STOP = 256


LEFT_RECURSIVE = [
    ('root ::= root "a" | "b"', ["b", "baa"], ["", "a", "ab"]),
    ('root ::= x root "a" | "b"\nx ::= y\ny ::= "" | "c"', ["b", "baa", "ccbaa"], ["cb", "ccba"]),
    ('root ::= ("a"? "b"?)* "c"', ["c", "abbac"], ["ab"]),
]
"""llama.cpp refuses these."""


@pytest.mark.parametrize(("grammar", "texts", "others"), [*ROWS, *LEFT_RECURSIVE])
def test_a_grammar_matches_its_texts_and_no_others(
    grammar: str, texts: Sequence[str], others: Sequence[str]
) -> None:
    constraint = constraint_on(BYTES, grammar, GrammarKind.GBNF)
    tokens = {text: [*text.encode(), STOP] for text in (*texts, *others)}
    matched = [
        text for text in tokens if constraint.count_allowed((), tokens[text]) == len(tokens[text])
    ]
    assert matched == list(texts)


@pytest.mark.parametrize(("grammar", "reason"), [*REFUSED, *REFUSED_BY_US])
def test_what_cannot_be_read_is_named(grammar: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        compiled(Grammar(GrammarKind.GBNF, grammar))


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "x" root | "."',
        'root ::= "x" y | "."\ny ::= "x" z\nz ::= "x"? root',
        'root ::= list "."\nlist ::= item ("x" list)?\nitem ::= "(" list ")" | "x"',
    ],
)
def test_recursion_at_the_end_goes_on_as_long_as_a_text(grammar: str) -> None:
    """The matcher would hold each rule that has not ended, and give up at some number of them."""
    constraint = constraint_on(BYTES, grammar, GrammarKind.GBNF)
    text = b"x" * 5001 + b"."
    for start in range(0, len(text), 500):
        part = list(text[start : start + 500])
        assert constraint.count_allowed((), part) == len(part)
        constraint.accept(part)
    assert constraint.count_allowed((), [STOP]) == 1
