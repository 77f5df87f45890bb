"""Follows a grammar token by token: what may follow, and what text is certain."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from backends.base import ModelError, Tokenizer
from decoding.constraint.compiled_grammar import CompiledGrammar, limits
from decoding.constraint.constraint import NOTHING_FORCED, Evidence, Forced, Mask
from decoding.constraint.divisions import Divider, Divisions, Spell
from decoding.constraint.grammar import ConstraintError, NotAllowedError

if TYPE_CHECKING:
    from llguidance import LLMatcher

AnswerT = TypeVar("AnswerT")


class Walker:
    """A matcher that is as far as the accepted tokens, or beyond them along a draft.

    make: makes another matcher, for one that failed, which it does for good.
    """

    def __init__(self, make: "Callable[[], LLMatcher]") -> None:
        self._make = make
        self._accepted: list[int] = []
        self._beyond: list[int] = []
        self._masked = 0
        """Tokens up to the place of the mask that the matcher keeps."""
        self._parted: int | None = None
        """Tokens up to where that place parts from this one; None if it does not."""
        self.matcher = make()

    def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """The answer to a question to the matcher; if it fails, that of a new one.

        A matcher counts the states of all that it ever looked at, rejected drafts included; a new
        one has only those of the accepted text. What was drafted so does not end a reply.

        Raises:
            ConstraintError: the new one fails too.
        """
        answer = question()
        if self.matcher.is_error():
            self._start_again()
            answer = question()
        if self.matcher.is_error():
            why = self.matcher.get_error().splitlines()[0]
            self._start_again()
            raise ConstraintError(why)
        return answer

    def walk(self, tokens: Sequence[int]) -> int:
        """Move to the end of tokens after the accepted ones; how many of them may follow.

        It then is after as many.

        Raises:
            ConstraintError: as of ask.
        """
        return self.ask(lambda: self._walked(tokens))

    def bitmask(self) -> bytes:
        """Which tokens may follow where it is, a bit for each.

        The matcher gives the mask that it keeps for every place with as many lexemes before it and
        the same that may follow, though it be along another draft. The mask of where the two parted
        holds for both.
        """
        length = len(self._accepted) + len(self._beyond)
        if self._parted is not None and self._parted < length:
            back = [*self._accepted, *self._beyond][self._parted :]
            self.matcher.rollback(len(back))
            self.matcher.compute_bitmask()
            self.matcher.try_consume_tokens(back)
        self._masked, self._parted = length, None
        return self.matcher.compute_bitmask()

    def _walked(self, tokens: Sequence[int]) -> int:
        kept = 0
        for beyond, token in zip(self._beyond, tokens, strict=False):
            if beyond != token:
                break
            kept += 1
        if kept < len(self._beyond):
            self.matcher.rollback(len(self._beyond) - kept)
            del self._beyond[kept:]
            place = len(self._accepted) + kept
            if place < self._masked:
                self._masked = self._parted = place
        if kept < len(tokens):
            rest = list(tokens[kept:])
            self._beyond += rest[: self.matcher.try_consume_tokens(rest)]
        return len(self._beyond)

    def accept(self, tokens: Sequence[int]) -> None:
        """Count tokens that were walked along among the accepted ones.

        Raises:
            ConstraintError: as of ask.
        """
        walked = self.walk(tokens)
        assert walked == len(tokens), "only what may follow is accepted"
        self._accepted += tokens
        self._beyond.clear()

    def _start_again(self) -> None:
        """Take a new matcher, at the accepted tokens."""
        self.matcher = self._make()
        self.matcher.try_consume_tokens(self._accepted)
        self._beyond.clear()
        self._masked, self._parted = 0, None


_FREE = (Evidence.FIRST, Evidence.SECOND, Evidence.FURTHER)
"""By the number of tokens since the last certain text."""

_LAST = len(_FREE) - 1


@dataclass(slots=True)
class ForcedText:
    """Follows the form of a grammar that tells what is certain; if that fails, nothing is any more.

    divider: divides what is certain; it learns how the model does, along tokens before which
    somebody asked. end: the token that usually ends a reply, None if there is none.
    """

    walker: Walker
    divider: Divider
    end: int | None
    _is_lost: bool = field(default=False, init=False)
    _is_followed: bool = field(default=False, init=False)
    """Whether anybody asked in this reply."""
    _free: int = field(default=0, init=False)
    """Accepted tokens since the last certain text."""

    def after(self, drafted: Sequence[int], limit: int) -> Forced:
        """At most limit tokens after the accepted ones and drafted, which have not ended it."""
        self._is_followed = True
        return self._unless_lost(lambda: self._after(drafted, limit)) or NOTHING_FORCED

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        """What speaks for each of tokens after the accepted ones and drafted, all of them legal."""
        self._is_followed = True
        try:
            return [] if self._is_lost else self._along([*drafted, *tokens])[len(drafted) :]
        except ConstraintError:  # of the grammar along this draft
            return []

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens."""
        if self._is_followed:
            self._unless_lost(lambda: self._learn(tokens))
        self._unless_lost(lambda: self.walker.accept(tokens))

    def _unless_lost(self, work: Callable[[], AnswerT]) -> AnswerT | None:
        """The result of work that follows the grammar, None where that fails for good."""
        if self._is_lost:
            return None
        try:
            return work()
        except ConstraintError:
            self._is_lost = True
            return None

    def _after(self, drafted: Sequence[int], limit: int) -> Forced:
        text = self._certain(drafted)
        divided = list(islice(self.divider.divided(text, self._settled), limit))
        tokens = [token for token, _ in divided]
        evidence = [one for _, one in divided]
        if self.end is not None and len(tokens) < limit and self._is_complete([*drafted, *tokens]):
            tokens.append(self.end)
            evidence.append(Evidence.LIKELY)
        return Forced(tuple(tokens), tuple(evidence))

    def _certain(self, tokens: Sequence[int]) -> bytes:
        """The certain text after the accepted tokens and these; the walker is there then."""

        def text() -> bytes:
            is_legal = self.walker.walk(tokens) == len(tokens)
            return self.walker.matcher.compute_ff_bytes() if is_legal else b""

        return self.walker.ask(text)

    def _settled(self) -> Sequence[int]:
        """The first tokens of the certain text where the walker is, whatever follows it."""
        return self.walker.matcher.compute_ff_tokens()

    def _along(self, line: Sequence[int]) -> list[Evidence]:
        """What speaks for each token of a line after the accepted ones."""
        found: list[Evidence] = []
        text, free = b"", self._free
        for count, token in enumerate(line):
            text = text or self._certain(line[:count])
            found.append(self.divider.evidence(text, token) if text else _FREE[min(free, _LAST)])
            free = 0 if text else free + 1
            text = self.divider.after(text, token)
        return found

    def _learn(self, tokens: Sequence[int]) -> None:
        """Learn how the model divided what was certain along emitted tokens."""
        text = b""
        for count, token in enumerate(tokens):
            text = text or self._certain(tokens[:count])
            self._free = 0 if text else self._free + 1
            self.divider.learn(text, token)
            text = self.divider.after(text, token)

    def _is_complete(self, tokens: Sequence[int]) -> bool:
        """Whether nothing may follow these tokens but the end of the reply."""
        return (
            self.walker.walk(tokens) == len(tokens)
            and self.walker.matcher.is_stopped()
            and self.walker.matcher.is_accepting()
        )


class MatcherConstraint:
    """Follows a grammar along drafted tokens, and takes them back for the next question.

    Each mask is computed once a step, whoever asks: a drafter, the target's row at the same place,
    or the draft of another drafter with the same beginning.

    matched: follows the grammar. forcing: follows the form of it that tells what text is certain.
    """

    def __init__(
        self, matched: Walker, forcing: ForcedText, n_vocab: int, end_tokens: Iterable[int]
    ) -> None:
        self._matched = matched
        self._forcing = forcing
        self._n_vocab = n_vocab
        self._end_tokens = frozenset(end_tokens)
        self._ends = np.array(sorted(self._end_tokens), dtype=np.int64)
        self._nothing = np.zeros(n_vocab, dtype=np.bool_)
        self._masks: dict[tuple[int, ...], Mask | None] = {}
        """By the tokens after the accepted ones."""
        self._is_over = False
        self.length = 0

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        place = tuple(drafted)
        if place not in self._masks:
            self._masks[place] = self._matched.ask(lambda: self._mask(place))
        return self._masks[place]

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        count = self._count([*drafted, *tokens])
        return max(count - len(drafted), 0)

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        return NOTHING_FORCED if self._ended(drafted) else self._forcing.after(drafted, limit)

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        if self._ended(drafted):
            found: Sequence[Evidence] = ()
        else:
            end = next((at for at, one in enumerate(tokens) if one in self._end_tokens), None)
            found = self._forcing.evidence(drafted, tokens[:end])
        return (*found, *(Evidence.FURTHER,) * (len(tokens) - len(found)))

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens.

        Raises:
            NotAllowedError: one was not allowed, as the model gave no allowed token a score.
            ConstraintError: the grammar cannot be followed any further.
        """
        if self._count(tokens) < len(tokens):
            raise NotAllowedError
        self._masks.clear()
        self.length += len(tokens)
        self._is_over = self._ended(tokens)
        if not self._is_over:
            self._matched.accept(tokens)
            self._forcing.accept(tokens)

    def _ended(self, tokens: Sequence[int]) -> bool:
        """Whether the reply is over after these tokens."""
        return self._is_over or not self._end_tokens.isdisjoint(tokens)

    def _mask(self, place: tuple[int, ...]) -> Mask | None:
        if self._count(place) < len(place):
            return self._nothing
        if self._ended(place):
            return None
        matcher = self._matched.matcher
        bits = np.frombuffer(self._matched.bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, count=self._n_vocab, bitorder="little").view(np.bool_)
        mask[self._ends] = matcher.is_accepting()
        mask.flags.writeable = False
        return mask

    def _count(self, tokens: Sequence[int]) -> int:
        """How many of tokens may follow the accepted ones; all may after one that ends it."""
        if self._is_over:
            return len(tokens)
        return self._matched.ask(lambda: self._counted(tokens))

    def _counted(self, tokens: Sequence[int]) -> int:
        end = next((at for at, token in enumerate(tokens) if token in self._end_tokens), None)
        count = self._matched.walk(tokens[:end])
        if end is None or count < end:
            return count
        return len(tokens) if self._matched.matcher.is_accepting() else count


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
