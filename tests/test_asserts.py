"""Python's -O leaves asserts out: the product has to do all that it does without them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("app", "backends", "decoding", "models", "training")
ONLY_LOOK = {"all", "any", "isinstance", "is_path", "is_tree", "len", "min", "sum"}
"""Functions that an assert may call."""

RAISING = re.compile(r'@property\s+def (\w+)\([^)]*\)[^:]*:\s+"""(?:(?!""").)*Raises:', re.DOTALL)
"""A property that raises what is meant for users: to look at it is a check."""


@cache
def texts() -> dict[str, str]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {f"{path.relative_to(ROOT)}": path.read_text("utf-8") for path in paths}


@cache
def checking() -> frozenset[str]:
    return frozenset(name for text in texts().values() for name in RAISING.findall(text))


def lost(text: str) -> Iterator[str]:
    """Asserts that do or check something that would be missing without them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert):
            parts = list(ast.walk(node.test))
            calls = {ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)}
            looks = {part.attr for part in parts if isinstance(part, ast.Attribute)}
            if calls - ONLY_LOOK or looks & checking() or any(map(is_binding, parts)):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def is_binding(part: ast.AST) -> bool:
    return isinstance(part, ast.NamedExpr | ast.Await)


def test_no_assert_does_or_checks_what_the_product_needs() -> None:
    found = {
        path: asserts
        for path, text in texts().items()
        if "assert " in text and (asserts := list(lost(text)))
    }
    assert not found


_LOADED = '''
    @property
    def loaded(self) -> Loaded:
        """What is loaded.

        Raises:
            RefusedError: nothing is.
        """
'''


@pytest.mark.parametrize(
    "text", ["assert self.walk(tokens) == 2", "assert (found := 1)", "assert served.loaded"]
)
def test_control_such_asserts_are_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.checking", lambda: frozenset(RAISING.findall(_LOADED)))
    assert list(lost(text))
