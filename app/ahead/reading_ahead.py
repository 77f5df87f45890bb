"""Reads what the next request will begin with, before it comes."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from app.ahead.certain_tokens import BegunPrompt, CertainTokens
from app.ahead.expected import AheadState, Expectation, Expected, pause_before
from app.ahead.piece_reader import SHORT_SECONDS, PieceReader
from app.loading.target_context import TargetContext
from app.paths import Paths
from app.prompt_cache.state_keeper import StateKeeper
from backends.base import PassStoppedError
from decoding.prefill import common_prefix

REST_SECONDS = 0.3
"""Time for which words stand before they are read. Typists at 60 words a minute press a key every
0.2 s and finish a word every second, so that every word is read before the next one is complete,
and one that is mistyped and mended at once is not. A guess; not measured."""


class RestedText:
    """Tokens of a growing prompt, and since when its beginning has been as it is.

    Each word rests for itself: a text never has to pause as a whole to be read.
    """

    def __init__(self) -> None:
        self.tokens: Sequence[int] = ()
        self._marks: list[tuple[float, int]] = []
        """Since when so many tokens stand; both grow."""

    def update(self, tokens: Sequence[int], since: float) -> None:
        kept = common_prefix(self.tokens, tokens)
        self._marks = [(at, min(length, kept)) for at, length in self._marks if at <= since]
        if len(tokens) > kept or not self._marks:
            self._marks.append((since, len(tokens)))
        self.tokens = tokens

    def length(self, now: float) -> int:
        rested = [length for since, length in self._marks if since + REST_SECONDS <= now]
        return max(rested, default=0)

    def next_in(self, now: float) -> float | None:
        """Seconds until more tokens have rested; None if all have."""
        rested = self.length(now)
        waits = [since + REST_SECONDS - now for since, length in self._marks if length > rested]
        return min(waits, default=None)


_LOOK_AGAIN_SECONDS = 1.0
"""Time after which it is asked again whether reading is allowed."""

_MOST_FAILURES = 3
"""In a row, after which the next one is expected too. A guess; not measured."""

_ENOUGH_WASTED = "enough of this message was read in vain"
_NOTHING = BegunPrompt()


@dataclass(eq=False)
class ReadingAhead:
    """Idle work that reads what is expected, as far as it is certain, in short pieces.

    A failure ends it until something else is expected, and several in a row end it for this model:
    the reply reads its prompt itself, and has errors of its own. refusal: why nothing is ever read
    ahead here, "" if it is.
    """

    expectation: Expectation
    context: TargetContext
    certain: CertainTokens
    reader: PieceReader
    keeper: StateKeeper
    paths: Paths
    refusal: str = ""
    _failure: str = field(default="", init=False)
    """Why reading what is expected failed, "" if it did not."""
    _failures: int = field(default=0, init=False)
    """In a row."""

    def __post_init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._seen: Expected | None = None
        self._begun = _NOTHING
        self._rested = RestedText()
        self._done = -1
        """Rested tokens of which nothing is left to read; -1 until that was tried."""
        self._pause_ends: float | None = None
        """When what is typed is read on as if it were sent; None if it is not, or was."""
        self._as_sent: Sequence[int] = ()
        """Tokens of the prompt if it were sent now, once they are found out."""
        self._prepared: object = None
        """Messages for which the context was prepared."""
        self._look_again_at = 0.0

    def due_in(self, idle: float) -> float | None:
        del idle  # what counts is the time since the last key
        latest, now = self.expectation.latest, time.monotonic()
        is_known = latest is self._seen
        if self._failures >= _MOST_FAILURES or (is_known and self._failure):
            return None
        if latest is None and is_known and not self._look_again_at:
            return None
        if latest is not None and (wait := self._refused_for(now)):
            return wait
        if not is_known or latest is None or self._rested.length(now) > self._done:
            return 0.0
        waits = self._rested.next_in(now), self._pause_left(now)
        return min((wait for wait in waits if wait is not None), default=None)

    def _pause_left(self, now: float) -> float | None:
        return None if self._pause_ends is None else max(0.0, self._pause_ends - now)

    def _refused_for(self, now: float) -> float:
        """Seconds until a refusal is looked at again; 0 if reading is allowed.

        Permission is asked here because work that is due interrupts less urgent work: refused work
        must not be due.
        """
        if 0.0 < self._look_again_at <= now and not self._is_refused(now):
            self._look_again_at = 0.0
        return max(0.0, self._look_again_at - now)

    def _is_refused(self, now: float) -> bool:
        reason = self.refusal or self.expectation.may_read()
        if reason:
            self._look_again_at = now + _LOOK_AGAIN_SECONDS
            self._tell(reason)
        return bool(reason)

    def run(self, is_wanted: Callable[[], bool]) -> None:
        try:
            while is_wanted() and self._advance(is_wanted):
                pass
        except PassStoppedError:  # a job is more urgent
            pass
        except Exception as error:  # whatever it is, it must not reach the user as an error
            self._failures += 1
            self._failure = f"it failed: {str(error) or type(error).__name__}"
            self._tell(self._failure)

    def _advance(self, is_wanted: Callable[[], bool]) -> bool:
        latest = self.expectation.latest
        if latest is not None and self._is_refused(time.monotonic()):
            return False
        self._look_again_at = 0.0
        if latest is not self._seen:
            self._examine(latest)
        if latest is None:
            self.expectation.publish(None)
            return False
        if self._begun.tokens and self._prepared != self._begun.messages:
            self._prepared = self._begun.messages
            if self.keeper.prepare(self._begun.tokens):  # which saves the state that it replaces
                self.reader.replaced()
            return True
        return self._read(latest, is_wanted)

    def _read(self, latest: Expected, is_wanted: Callable[[], bool]) -> bool:
        length = self._rested.length(time.monotonic())
        tokens, reason = self._readable(length)
        self._tell(reason)
        if reason:
            self._pause_ends = None
        about = self._begun.total if latest.is_typing or not self._begun.has_text else None
        if self.reader.read(tokens, time.monotonic() - latest.typed_at, about):
            self._failures = 0
            return True
        self.reader.read_along(tokens, SHORT_SECONDS, is_wanted)
        if not is_wanted():
            return False
        self.reader.rest()
        if self._pause_left(time.monotonic()) == 0.0 and self._read_on(latest):
            return True
        self._end(length)
        return False

    def _read_on(self, latest: Expected) -> bool:
        """Read a piece of what would follow if the text were sent; False if there is no more.

        It is taken back if another key comes. A running state can go back by one piece.
        """
        if not self._as_sent:
            self._as_sent = self._tokens_as_sent(latest)
        is_read = self.reader.read(self._as_sent, time.monotonic() - latest.typed_at)
        is_over = not is_read or bool(self.context.facts.state_bytes)
        if is_over:
            self._pause_ends = None
        return is_read and not is_over

    def _tokens_as_sent(self, latest: Expected) -> Sequence[int]:
        """The prompt if it were sent now but for its last token; nothing if it begins otherwise."""
        tokens, certain = self.certain.as_sent(latest).tokens, self._begun.tokens
        is_continued = common_prefix(tokens, certain) == len(certain)
        return tokens if is_continued and len(tokens) < self.context.facts.n_ctx else ()

    def _examine(self, latest: Expected | None) -> None:
        """Find out what is certain of what is expected now."""
        self._seen, self._done, self._failure = latest, -1, ""
        self.expectation.followed = latest
        self._begun = self.certain.of(latest) if latest is not None else _NOTHING
        if self._begun.tokens and self._prepared not in (None, self._begun.messages):
            # What is wasted on other chats does not count against this message.
            self.reader.change_message(self._begun.tokens)
        is_typing = latest is not None and latest.is_typing
        since = latest.typed_at if latest is not None and is_typing else float("-inf")
        self._rested.update(self._begun.tokens, since)
        self._pause_ends, self._as_sent = None, ()
        if latest is not None and is_typing and self._begun.has_text:
            self._pause_ends = latest.typed_at + pause_before(latest.conversation.turns[-1].content)

    def _readable(self, length: int) -> tuple[Sequence[int], str]:
        """Tokens to read of those that have rested, and why it is not all of them."""
        tokens, untyped = self._begun.tokens, self._begun.untyped
        reason = ""
        if length > untyped and self.reader.pieces.wasted >= self.expectation.most_waste():
            length, reason = untyped, _ENOUGH_WASTED
        return tokens[: min(length, self.context.facts.n_ctx - 1)], reason

    def _end(self, length: int) -> None:
        """Note that nothing is left to read of what has rested."""
        self._done = length
        is_conversation = bool(self._begun.messages) and not self._begun.has_text
        if is_conversation and self.context.facts.length <= len(self._begun.tokens):
            self.keeper.answered()

    def _tell(self, paused: str) -> None:
        """Publish how much of the prompt is ready, and why no more is read."""
        read = common_prefix(self.context.facts.tokens, self._begun.tokens)
        self.expectation.publish(AheadState(read, self._begun.total, paused))

    def hand_over(self, prompt: Sequence[int]) -> int:
        """Prepare the context for a reply; returns how many tokens of its prompt were read ahead.

        Nothing is expected any more.
        """
        if self.keeper.prepare(prompt):
            self.reader.replaced()
        tokens = self.reader.hand_over(prompt)
        self.expect_nothing()
        return tokens

    def look_again(self) -> None:
        self._done = -1

    def expect_nothing(self) -> None:
        """Forget what is expected, until something is again."""
        self.expectation.latest = None
        self._forget()
        self.expectation.publish(None)

    def close(self) -> None:
        """Keep the account of what was read for a message that was not sent."""
        self.reader.pieces.settle(0)
        self.keep_account()

    def keep_account(self) -> None:
        """Add the account of what was read, as far as it is closed, to the totals on disk."""
        with suppress(Exception):  # figures are not worth an error
            self.reader.pieces.take_closed().keep(self.paths)
