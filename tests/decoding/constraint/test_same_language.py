"""A GBNF grammar lets exactly those texts follow that llama.cpp lets follow."""

import ctypes
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends.base import UsageError
from backends.llamacpp.loading import vocabulary
from decoding.constraint import gbnf_rules as gbnf
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.gbnf import Outline
from decoding.constraint.grammar import ConstraintError, Grammar, GrammarKind
from decoding.constraint.matcher import GrammarVocabulary, MatcherConstraint
from tests.fixtures.gbnf_rows import REFUSED, ROWS

END, BYTES, _FIRST_PIECE = 1, 2, 258
"""The tokens of a vocabulary file: the second ends a reply; all bytes; pieces."""


class EngineGrammar:
    """What llama.cpp lets follow; tokens: those of the pieces that it is asked about, and END."""

    def __init__(self, pointer: Any, ours: GrammarVocabulary, pieces: Sequence[str]) -> None:
        self.ours = ours
        self.pieces = pieces
        self.tokens = [END, *range(_FIRST_PIECE, _FIRST_PIECE + len(pieces))]
        self._pointer = pointer
        self._numbers = (api.llama_token_data * len(self.tokens))()
        asked = api.llama_token_data_array(self._numbers, len(self.tokens), -1, False)
        self._asked: Any = ctypes.byref(asked)

    @contextmanager
    def reader(self, grammar: str) -> Iterator[Any]:
        """A sampler at the start of a grammar; false for a grammar that llama.cpp refuses."""
        sampler = api.llama_sampler_init_grammar(self._pointer, grammar.encode(), b"root")
        try:
            yield sampler
        finally:
            if sampler:
                api.llama_sampler_free(sampler)

    def allowed(self, sampler: Any) -> set[int]:
        """The tokens that may follow where a sampler is."""
        for place, token in enumerate(self.tokens):
            self._numbers[place] = api.llama_token_data(token, 0.0, 0.0)
        api.llama_sampler_apply(sampler, self._asked)
        return {one.id for one in self._numbers if np.isfinite(one.logit)}

    @contextmanager
    def after(self, sampler: Any, token: int) -> Iterator[Any]:
        """A sampler further by a token, which must be allowed, or the process ends."""
        further = api.llama_sampler_clone(sampler)
        try:
            api.llama_sampler_accept(further, token)
            yield further
        finally:
            api.llama_sampler_free(further)

    def spelled(self, tokens: Sequence[int]) -> list[int]:
        """The same text in tokens of a byte each."""
        text = "".join(self.pieces[token - _FIRST_PIECE] for token in tokens)
        return [BYTES + byte for byte in text.encode()]


@contextmanager
def engine_grammar(path: Path, pieces: Sequence[str]) -> Iterator[EngineGrammar]:
    """The sampler on a vocabulary of bytes and pieces, which is written to a file."""
    _write_vocabulary(path, pieces)
    with vocabulary(path) as read:
        tokenizer: Any = read.tokenizer
        ours = GrammarVocabulary(tokenizer, lambda text: [BYTES + byte for byte in text])
        yield EngineGrammar(tokenizer._vocabulary, ours, pieces)


def _write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "</s>", *raw, *(piece.replace(" ", "\u2581") for piece in pieces)]
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * len(raw)
    kinds += [gguf.TokenType.NORMAL] * len(pieces)
    with closing(gguf.GGUFWriter(path, "llama")) as writer:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_token_types(kinds)
        writer.add_unk_token_id(0)
        writer.add_eos_token_id(END)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


PIECES = ["a", "b", "c", "ab", "é", "è", "ê", "\n", "&", "~", "[", " ", "😀", "en", "d"]
PLAIN = ['"a"', '"b"', '"ab"', '"ba"', '""']
RICH = [
    *('"a"', '"b"', '"ab"', '"é"', '"\\u00e9b"', '"\\U0001F600"', '"\\n"', '"\\["', '"&~"'),
    *("[ab]", "[a-c]", "[^a]", "[^\\u00e8-\\u00ea]", "[é-ê]", "[&&~]", "[a-]", "[\\x61\\n]", "."),
]
TIMES = ["*", "+", "?", "{2}", "{0}", "{1,}", "{0,2}", "{1,3}"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineGrammar]:
    with engine_grammar(tmp_path_factory.mktemp("gbnf") / "vocabulary.gguf", PIECES) as made:
        yield made


def ours(constraint: MatcherConstraint, drafted: Sequence[int], tokens: Sequence[int]) -> set[int]:
    try:
        mask = constraint.allowed(drafted)
    except ConstraintError:  # nothing may follow
        return set()
    assert mask is not None
    return {token for token in tokens if mask[token]}


def compared(engine: EngineGrammar, text: str, length: int) -> int:
    """How many beginnings of texts were compared, of up to so many tokens and all that may follow.

    Each is asked for along a draft, in an order that goes back and forth.
    """
    with engine.reader(text) as reader:
        if not reader:
            return 0
        start = engine.allowed(reader)
        if not start:
            with pytest.raises(UsageError, match="no text"):
                engine.ours.constraint(compiled(Grammar(GrammarKind.GBNF, text)))
            return 1
        constraint = engine.ours.constraint(compiled(Grammar(GrammarKind.GBNF, text)))

        def compare(reader: Any, drafted: list[int]) -> int:
            allowed = engine.allowed(reader)
            assert ours(constraint, drafted, engine.tokens) == allowed, (text, drafted)
            letters = engine.spelled(drafted)
            assert constraint.count_allowed((), letters) == len(letters), (text, drafted)
            count = 1
            if len(drafted) < length:
                for token in sorted(allowed - {END}):
                    with engine.after(reader, token) as further:
                        count += compare(further, [*drafted, token])
            return count

        return compare(reader, [])


def random_grammar(choose: random.Random, items: Sequence[str], names: Sequence[str]) -> str:
    named = [choose.choice(names) for _ in range(4)]  # llama.cpp takes exponential time for many

    def item(depth: int) -> str:
        kind = choose.random()
        if kind < 0.3 and named:
            made = named.pop()
        elif kind < 0.45 and depth:
            made = f"({choice(depth - 1)})"
        else:
            made = choose.choice(items)
        return made + (choose.choice(TIMES) if choose.random() < 0.25 and made != '""' else "")

    def choice(depth: int) -> str:
        ways = range(choose.choice((1, 1, 2, 2, 3)))
        return " | ".join(
            " ".join(item(depth) for _ in range(choose.randrange(4))) or '""' for _ in ways
        )

    return "\n".join(f"{name} ::= {choice(2)}" for name in names)


def is_empty(node: gbnf.Node, empty: set[str]) -> bool:
    match node:
        case gbnf.Sequence(items):
            return all(is_empty(item, empty) for item in items)
        case gbnf.Choice(items):
            return any(is_empty(item, empty) for item in items)
        case gbnf.Repeat(item, least):
            return least == 0 or is_empty(item, empty)
        case gbnf.Rule(name):
            return name in empty
        case gbnf.Chars():
            return False


def heads(node: gbnf.Node, empty: set[str]) -> Iterator[str]:
    """What a part may begin with; "" for itself, wherever in it that is."""
    match node:
        case gbnf.Sequence(items):
            is_first = True
            for item in items:
                yield from (head for head in heads(item, empty) if is_first or not head)
                is_first = is_first and is_empty(item, empty)
        case gbnf.Choice(items):
            for item in items:
                yield from heads(item, empty)
        case gbnf.Repeat(item, _, most):
            yield from heads(item, empty)
            if most is None and is_empty(item, empty):
                yield ""
        case gbnf.Rule(name):
            yield name
        case gbnf.Chars():
            pass


def is_left_recursive(rules: Mapping[str, gbnf.Node]) -> bool:
    """Whether a rule, or what is repeated, may begin with itself: llama.cpp refuses it or hangs."""
    empty: set[str] = set()
    while more := {name for name, node in rules.items() if is_empty(node, empty)} - empty:
        empty |= more
    leads = {"": {""}, **{name: set(heads(node, empty)) for name, node in rules.items()}}
    for _ in rules:
        leads = {name: found.union(*(leads[one] for one in found)) for name, found in leads.items()}
    return any(name in found or "" in found for name, found in leads.items() if name)


@pytest.mark.parametrize(
    "count", [30, pytest.param(10_000, marks=pytest.mark.nightly)], ids=["30", "10,000"]
)
@pytest.mark.parametrize(
    ("items", "names", "length"),
    [(PLAIN, ("root", "x", "y"), 4), (RICH, ("root", "x", "x-1", "X"), 2)],
    ids=["letters", "rich"],
)
def test_random_grammars_allow_what_llama_cpp_allows(
    engine: EngineGrammar, items: Sequence[str], names: Sequence[str], length: int, count: int
) -> None:
    choose, same = random.Random(count), 0
    while same < count:
        text = random_grammar(choose, items, names)
        if not is_left_recursive(gbnf.read_rules(text)):
            same += compared(engine, text, length) > 0  # some are refused for a part that is unused


@pytest.mark.parametrize("text", [grammar for grammar, _, _ in ROWS])
def test_grammars_from_reports_allow_what_llama_cpp_allows(
    engine: EngineGrammar, text: str
) -> None:
    assert compared(engine, text, 3) > 1


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [*((text, True) for text, _, _ in ROWS), *((text, False) for text, _ in REFUSED)],
)
def test_what_is_refused_is_what_llama_cpp_refuses(
    engine: EngineGrammar, text: str, is_taken: bool
) -> None:
    with engine.reader(text) as reader:
        assert bool(reader) is is_taken


def test_lexemes_that_lose_texts_are_caught(
    engine: EngineGrammar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every regular part a lexeme, as if the matcher's lexer kept all ways to read a text."""
    monkeypatch.setattr(Outline, "_split", lambda self, choices: None)
    with pytest.raises(AssertionError, match="root ::= "):
        compared(engine, ROWS[-1][0], 3)
