"""Answers side by side: one in the session's own sequence, and others beside it."""

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from app.engine.answer import FIGURES_SECONDS, Answer, Stage
from app.engine.metrics import reply_metrics
from app.engine.prompt_builder import PromptBuilder
from app.engine.session import Session
from backends.base import Context, SpecchatError
from backends.base.images import IMAGE_TOKENS
from backends.base.model import SharedContext
from decoding.draft import MOST_DRAFTED
from decoding.planning.batch import Batch
from decoding.prefill import common_prefix


@dataclass(slots=True, eq=False)
class SideBySide:
    """Answers of one session that are computed together, on the engine's thread.

    own: the session's own sequence, in which in_own answers a request. most: answers at once.
    joins_programs: whether programs are answered beside others.
    reported: an error in the words for users. ended: told of each answer beside that ends.
    unfinished: how many answers are in progress, or wait for their turn. is_awaited: whether a job
    waits that run would let join.
    """

    session: Session
    own: SharedContext
    most: int
    prompts: PromptBuilder
    joins_programs: bool
    in_own: Callable[[Answer], None]
    reported: Callable[[Exception], SpecchatError]
    ended: Callable[[Answer], None]
    unfinished: Callable[[], int]
    is_awaited: Callable[[], bool]
    beside: list[Answer] = field(default_factory=list[Answer], init=False)
    sequences: "Sequences" = field(init=False)
    _batch: Batch = field(init=False)
    _own_answer: Answer | None = field(default=None, init=False)
    _own_prompt: Sequence[int] = field(default=(), init=False)
    _of_drafters: "dict[Context, Sequences]" = field(default_factory=lambda: {}, init=False)

    def __post_init__(self) -> None:
        costs = lambda: self.session.drafting.costs  # noqa: E731 - they may be replaced
        self.sequences = Sequences(self.own)
        self._batch = Batch(self.own, costs, is_awaited=self.is_awaited)

    def run(self, first: Answer, join: Callable[[], None]) -> None:
        """Answer a request, and those that join lets begin, as soon as something waits."""
        if not self.begin(first):
            self.in_own(first)
        try:
            while len(self._batch):
                join()
                self._batch.step()
        finally:
            self._batch.close()

    def begin(self, answer: Answer) -> bool:
        """Begin an answer beside those in progress; False while it has to wait.

        Images wait for the session's own sequence, and so does the user while a program has it.
        """
        is_program, own = bool(answer.request.program), self._own_answer
        may_join = self.joins_programs or not is_program
        if len(self._batch) >= (self._most_at_once if may_join else 1):
            return False
        if self.sequences.is_own_free:
            return self._begin_own(answer)
        has_user = own is not None and not own.request.program
        return (is_program or has_user) and self._begin_beside(answer)

    @property
    def _most_at_once(self) -> int:
        """As many of those asked for as together make the most tokens a second, if allowed."""
        costs = self.session.drafting.costs
        if costs is None:
            return self.most
        counts = range(1, min(self.most, costs.largest, max(self.unfinished(), 1)) + 1)
        return max(counts, key=lambda count: count / costs.relative(count))

    def _begin_own(self, answer: Answer) -> bool:
        prompt: Sequence[int] = ()
        with contextlib.suppress(Exception):  # its turn will tell
            prompt = self.prompts.prompt(answer, self.session).tokens
        if not self.sequences.reserve(self._need(answer, prompt) if prompt else 0, prompt):
            return False
        self._own_answer, self._own_prompt = answer, prompt

        def work() -> None:
            try:
                self.in_own(answer)
            finally:
                self._own_answer = None
                self.sequences.give_back(self.own)

        self._batch.begin(self.own, work, is_program=bool(answer.request.program))
        return True

    def _begin_beside(self, answer: Answer) -> bool:
        try:
            tokens = self.prompts.prompt(answer, self.session).tokens
            if max(tokens) >= IMAGE_TOKENS or self._will_be_read(tokens):
                return False
            need = self._need(answer, tokens)
            sequence = self.sequences.take(tokens, need)
        except Exception as error:
            with self._ending(answer) as is_mine:
                answer.error = self.reported(error) if is_mine else None
            return True
        if sequence is None:
            return False
        drafting = self._drafting_sequences(tokens, need)

        def work() -> None:
            try:
                with self._ending(answer) as is_mine:
                    if is_mine:
                        own = {of: its for of, (_, its) in drafting.items()}
                        self._fill(answer, self.session.beside(sequence, own))
            finally:
                # The user's next question goes to the session's own one: no cell waits for it.
                is_kept = bool(answer.request.program)
                for sequences, its in drafting.values():
                    sequences.give_back(its, is_kept=is_kept)
                self.sequences.give_back(sequence, is_kept=is_kept)

        self._batch.begin(sequence, work, is_program=bool(answer.request.program))
        return True

    def _will_be_read(self, prompt: Sequence[int]) -> bool:
        """Whether the answer in the session's own sequence is about to read more of a prompt."""
        held, coming = (common_prefix(one, prompt) for one in (self.own.tokens, self._own_prompt))
        return self._own_answer is not None and coming > held + 1

    def _drafting_sequences(
        self, prompt: Sequence[int], need: int
    ) -> dict[Context, tuple["Sequences", Context]]:
        """Sequences of the drafter models' contexts for one reply, as far as there is room."""
        drafting = self.session.drafting
        self._of_drafters = {
            context: self._of_drafters.get(context) or Sequences(context, keeps_own=True)
            for context in drafting.shared_contexts
        }
        taken = dict[Context, tuple[Sequences, Context]]()
        for context, sequences in self._of_drafters.items():
            if len(prompt) < context.n_ctx:
                its = sequences.take(prompt, min(need, context.n_ctx))
                if its is not None:
                    taken[context] = sequences, its
        return taken

    def _need(self, answer: Answer, prompt: Sequence[int]) -> int:
        """Cells that an answer may come to hold, with a draft after its text."""
        return min(len(prompt) + answer.request.max_tokens + MOST_DRAFTED, self.own.n_ctx)

    @contextlib.contextmanager
    def _ending(self, answer: Answer) -> Generator[bool]:
        """Claim an answer, finish it whatever happens; yields False if it was stopped before."""
        if is_mine := answer.claim():
            self.beside.append(answer)
        try:
            yield is_mine
        except Exception as error:
            answer.error = self.reported(error)
        finally:
            self.ended(answer)
            if is_mine:
                self.beside.remove(answer)
                answer.finish()

    def _fill(self, answer: Answer, session: Session) -> None:
        answer.model, answer.stage = session.reference.name, Stage.READING
        prompt = self.prompts.take(answer, session)
        stream = session.stream(prompt, answer.reply, lambda: answer.is_stopped)
        told_at = 0.0
        with contextlib.closing(stream) as events:
            for event in events:
                for one in (self._own_answer, *self.beside):
                    if one is not None:
                        one.reply.is_shared = True
                answer.on_event(event)
                if (now := time.perf_counter()) - told_at >= FIGURES_SECONDS:
                    told_at = now
                    answer.metrics = reply_metrics(session, answer.reply, is_final=False)
                self.prompts.work_beside(session)
        answer.metrics = reply_metrics(session, answer.reply)


class Sequences:
    """Sequences in the cells of one context. Those of past replies wait for prompts that go on.

    own: the context, which is the session's own sequence.
    """

    def __init__(self, own: SharedContext, *, keeps_own: bool = False) -> None:
        """keeps_own: whether the session's own sequence always has room for a whole context."""
        self.own = own
        self.idle: list[Context] = []
        """Those of past replies, the latest last."""
        self._reserved: dict[Context, int] = {}
        """Cells that replies in progress may come to hold."""
        self._prompt: Sequence[int] = ()
        """Of the reply in the session's own sequence."""
        if keeps_own:
            self.reserve(own.n_ctx)

    @property
    def is_own_free(self) -> bool:
        """Whether no reply is in progress in the session's own sequence."""
        return self.own not in self._reserved

    def reserve(self, need: int, prompt: Sequence[int] = ()) -> bool:
        """Reserve cells for a reply in the session's own sequence; False while there is no room."""
        own, self._prompt = self.own, prompt
        if is_possible := self._make_room(need, lambda: own.length - own.shared_after(self._kept)):
            self._reserved[own] = need
        return is_possible

    @property
    def _kept(self) -> int:
        """Tokens of the session's own sequence that its reply does not give up."""
        return common_prefix(self.own.tokens, self._prompt)

    def take(self, prompt: Sequence[int], need: int) -> Context | None:
        """A sequence that begins as a prompt does, as far as any known one; None without room.

        need: cells of prompt and reply. They are reserved: nothing that runs ever lacks room.
        """
        known = {
            one: min(common_prefix(one.tokens, prompt), len(prompt) - 1)
            for one in (*self.idle, self.own, *self._reserved)
        }
        source = max(known, key=lambda one: known[one])
        shared = known[source]
        if source in self.idle and 2 * shared >= source.length:  # the same chat goes on
            self.idle.remove(source)
            source.truncate(source.rollback_to(shared))  # first: others may keep its cells
            if not self._make_room(need, lambda: source.length):
                self.idle.append(source)
                return None
            taken = source
        else:
            held = min(shared, self._kept) if source is self.own else shared
            if not self._make_room(need, lambda: held, source):
                return None
            taken = self.own.fork(source, shared)
        self._reserved[taken] = need
        return taken

    def give_back(self, sequence: Context, *, is_kept: bool = True) -> None:
        """Keep the sequence of a reply that has ended, for a prompt that goes on from there."""
        del self._reserved[sequence]
        if not is_kept:
            sequence.close()
        elif sequence is not self.own:
            self.idle.append(sequence)

    def _make_room(self, need: int, held: Callable[[], int], forked: Context | None = None) -> bool:
        """Give up idle sequences, the oldest first, until so many more cells can be held.

        held: cells of these that are held already. forked: that another is to be opened from.
        """
        promised = sum(max(most - one.length, 0) for one, most in self._reserved.items())

        def has_room() -> bool:
            opened = len({self.own, *self.idle, *self._reserved}) + (forked is not None)
            lost = 0 if self.is_own_free else self.own.shared_after(self._kept)
            is_enough = self.own.free_cells + held() - promised - lost >= need
            return is_enough and opened <= self.own.max_sequences

        idle = [one for one in self.idle if one is not forked]
        while not has_room() and idle:
            oldest = idle.pop(0)
            self.idle.remove(oldest)
            oldest.close()
        return has_room()
