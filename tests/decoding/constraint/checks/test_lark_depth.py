"""The depth of a Lark grammar is that of the deepest way through its rules."""

import pytest

from decoding.constraint.checks import lark_depth


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ("", 0),
        ('start: "a"', 1),
        ('start: one two\none: "a"\ntwo: "b"', 2),
        ('start: one\none: TWO\nTWO: "b"', 3),
        ('start: one\n?one: ("a" | ("b" "c")) (two)\n!two: "b"', 1 + 3 + 1),
        ('start: one\n | "a"\none: "x" start', 2),
        ('start: one\none: "x" one two | ""\ntwo: one | three\nthree: "y"', 4),
        ('start: one\n\n// two\none[stop="x"]: "a"', 1 + 2),
        ('start: %json {"type": "string"}', 1 + 1),
        ('start: %json {"properties": {"a": {"type": "string"}}}', 1 + 3),
    ],
)
def test_rules_and_groups_within_each_other_count(grammar: str, expected: int) -> None:
    assert lark_depth(grammar) == expected
