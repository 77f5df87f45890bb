"""The vocabulary of a model, as the matcher of grammars reads it."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from backends.base import Tokenizer
from decoding.constraint.compiled_grammar import CompiledGrammar, limits
from decoding.constraint.matcher_constraint import MatcherConstraint

Spell = Callable[[bytes], list[int]]
"""The tokens that a text is usually divided into."""


class GrammarVocabulary:
    """Builds constraints in the tokens of one model.

    Building it takes up to a second for a large vocabulary, so it is kept as long as the model.
    """

    def __init__(self, tokenizer: Tokenizer, spell: Spell) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self.n_vocab = tokenizer.n_vocab
        self.end_tokens = tokenizer.end_tokens
        stated = _Stated(tokenizer, spell)
        self.texts: Sequence[bytes] = stated.tokens
        """Of each token, control tokens by their names; empty for padding."""
        # The library needs an end token; of a model that has none it is one past the vocabulary.
        ends = sorted(self.end_tokens) or [tokenizer.n_vocab]
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(cast("Any", stated)),
            n_vocab=max(tokenizer.n_vocab, ends[-1] + 1),
            eos_token=ends,
        )

    def constraint(self, grammar: CompiledGrammar) -> MatcherConstraint:
        """A constraint that nothing was accepted under yet.

        Raises:
            UsageError: the grammar cannot be used with this vocabulary, or nothing can match it.
        """
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar.text, log_level=0, limits=limits())
        if matcher.is_error():
            raise grammar.refused(matcher.get_error())
        constraint = MatcherConstraint(matcher, self.n_vocab, self.end_tokens)
        allowed = constraint.allowed(())
        if allowed is not None and not allowed.any():
            raise grammar.refused("no text can match it")
        return constraint


class _Stated:
    """A tokenizer with the attributes that the library asks for.

    tokens: bytes of each token, none for padding, which is then never allowed; the name of a
    control token, which only a grammar that names it allows.
    """

    def __init__(self, tokenizer: Tokenizer, spell: Spell) -> None:
        self._spell = spell
        self.tokens: list[bytes] = []
        self.special_token_ids: list[int] = []
        for token in range(tokenizer.n_vocab):
            piece = b"" if tokenizer.is_padding(token) else tokenizer.piece(token)
            if token in tokenizer.end_tokens or (not piece and not tokenizer.is_padding(token)):
                piece = tokenizer.entry(token)
                self.special_token_ids.append(token)
            self.tokens.append(piece)
        self.eos_token_id = min(tokenizer.end_tokens, default=tokenizer.n_vocab)
        self.bos_token_id = tokenizer.bos

    def __call__(self, text: bytes | str) -> list[int]:
        return self._spell(text.encode() if isinstance(text, str) else text)
