"""The vocabulary of a model, as the matcher of grammars reads it."""

from functools import partial
from typing import Any, cast

from backends.base import ModelError, Tokenizer
from decoding.constraint.compiled_grammar import CompiledGrammar, limits
from decoding.constraint.divider import Divider, Spell
from decoding.constraint.divisions import Divisions
from decoding.constraint.forced_text import ForcedText
from decoding.constraint.matcher_constraint import MatcherConstraint
from decoding.constraint.walker import Walker


class GrammarVocabulary:
    """Builds constraints in the tokens of one model.

    Building it takes up to a second for a large vocabulary, so it is kept as long as the model.
    """

    def __init__(self, tokenizer: Tokenizer, spell: Spell) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self.n_vocab = tokenizer.n_vocab
        self.end_tokens = tokenizer.end_tokens
        stated = _Stated(tokenizer, spell)
        self.texts = tuple(stated.tokens[: self.n_vocab])
        """Of each token, control tokens by their names; empty for padding."""
        self._spell = spell
        self._end = tokenizer.eos if tokenizer.eos in self.end_tokens else None
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(cast("Any", stated)), eos_token=stated.end_tokens
        )

    def constraint(
        self, grammar: CompiledGrammar, divisions: Divisions | None = None
    ) -> MatcherConstraint:
        """A constraint that nothing was accepted under yet.

        divisions: known from earlier replies of the model, and learned further in this one.

        Raises:
            UsageError: the grammar cannot be used with this vocabulary, or nothing can match it.
        """
        matched, forcing = self._walker(grammar.text), self._walker(grammar.forcing)
        for walker in (matched, forcing):
            if walker.matcher.is_error():
                raise grammar.refused(walker.matcher.get_error())
        divider = Divider(self.texts, self._spell, divisions or Divisions(self.texts))
        forced = ForcedText(forcing, divider, self._end)
        constraint = MatcherConstraint(matched, forced, self.n_vocab, self.end_tokens)
        try:
            constraint.allowed(())
        except ModelError as error:
            raise grammar.refused("no text can match it") from error
        return constraint

    def _walker(self, grammar: str) -> Walker:
        from llguidance import LLMatcher

        return Walker(partial(LLMatcher, self._tokenizer, grammar, log_level=0, limits=limits()))


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
        if not tokenizer.end_tokens:  # the library needs one: past the vocabulary, so never masked
            self.special_token_ids.append(len(self.tokens))
            self.tokens.append(b"<end>")
        self.end_tokens = sorted(tokenizer.end_tokens) or [tokenizer.n_vocab]
        self.eos_token_id = self.end_tokens[0]
        self.bos_token_id = tokenizer.bos

    def __call__(self, text: bytes | str) -> list[int]:
        return self._spell(text.encode() if isinstance(text, str) else text)
