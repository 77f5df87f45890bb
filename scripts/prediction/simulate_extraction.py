"""Simulate what the forced tokens of JSON schemas are worth on a machine of given costs.

Run: `python -m scripts.prediction.simulate_extraction MODEL [--further] [--token 0.5]`.

The model writes each answer plainly once. Then the real controller drafts it with `lookup` and the
grammar, as if the model went on saying the same, at passes that cost a plain step and so much for
each drafted token: nothing depends on the machine or on what else it does. The texts come in
several orders, as what was learned from one drafts the next; each order is gone through twice, the
second time with every schema known.
"""

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.chat.conversation import Conversation, ReplyOptions
from app.engine.reply import new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.structured_output import ReplyConstraints
from backends.base import Tokenizer
from backends.chat.chat_template import Prompt
from backends.chat.message import Message
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.drafters.forced_tokens import ForcedTokens
from decoding.drafters.lookup import PromptLookup
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from scripts.prediction.extraction_tasks import EXTRACTIONS, Extraction
from scripts.prediction.further_extraction_tasks import FURTHER_EXTRACTIONS

_CONTEXT = 1024
_LONGEST_PASS = 64
_GREEDY = SamplingSettings(0.0)


@dataclass(frozen=True, slots=True)
class _Written:
    """An answer as the model writes it."""

    prompt: Prompt
    tokens: Sequence[int]
    grammar: Grammar


class _Machine:
    """Drafts answers one after another, as a session does. token: cost of a drafted token."""

    def __init__(self, tokenizer: Tokenizer, token: float) -> None:
        self._n_vocab = tokenizer.n_vocab
        self._token = token
        self._constraints = ReplyConstraints(tokenizer)
        self._known: dict[str, Acceptance] = {}

    def speedup(self, written: _Written) -> float:
        """Of drafting an answer over writing it plainly."""
        prompt = list(written.prompt.tokens)
        constraint = self._constraints.of(written.grammar, written.prompt)
        own, other = (
            ManagedDrafter(drafter, self._known.get(drafter.name))
            for drafter in (ForcedTokens(), PromptLookup())
        )
        passes = {count: self._cost(count) for count in range(1, _LONGEST_PASS + 1)}
        controller = Controller([other], CostModel(passes), self._n_vocab, lambda: 0.0)
        controller.add([own])
        sampler = Sampler(_GREEDY, len(prompt), constraint)
        controller.begin(prompt, sampler)
        cost = self._drafted(controller, sampler, prompt, written.tokens)
        for managed in (own, other):
            self._known[managed.name] = Acceptance(managed.estimates.acceptance.counts())
        return (len(written.tokens) - 1) / cost

    def _drafted(
        self, controller: Controller, sampler: Sampler, prompt: list[int], reply: Sequence[int]
    ) -> float:
        """What it costs to draft a reply after its first token, in plain steps."""
        history, cost = [*prompt, reply[0]], 0.0
        while rest := reply[len(history) - len(prompt) :]:
            controller.commit(history)
            sampler.follow(history)
            draft = controller.propose(history, _CONTEXT - len(history))
            right = [mine == its for mine, its in zip(draft.tokens, rest[:-1], strict=False)]
            accepted = [*right, False].index(False)
            drafted, seconds = len(draft), self._cost(1 + len(draft))
            tokens = tuple(rest[: accepted + 1])
            step = Step(tokens, draft.drafter, drafted, accepted, 0.0, seconds, seconds, 0.0)
            controller.observe(step)
            history.extend(tokens)
            cost += seconds
        return cost

    def _cost(self, tokens: int) -> float:
        return 1.0 + self._token * (tokens - 1)


def main() -> None:
    """Write each answer, and print the geometric means of the speedups of drafting it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--further", action="store_true", help="12 other texts")
    parser.add_argument("--token", type=float, default=0.5, help="cost of a drafted token")
    parser.add_argument("--orders", type=int, default=5, help="of the texts; the first is theirs")
    parser.add_argument("--tokens", type=int, default=400, help="most of each answer")
    arguments = parser.parse_args()
    tasks = FURTHER_EXTRACTIONS if arguments.further else EXTRACTIONS
    with tempfile.TemporaryDirectory() as home:
        os.environ[HOME_VARIABLE] = home
        options = SessionOptions(str(arguments.model), draft="off", ctx=_CONTEXT, offline=True)
        with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
            answers = [_written(session, task, arguments.tokens) for task in tasks.values()]
            tokenizer = session.model.tokenizer
            orders = [
                _round_twice(tokenizer, answers, at, arguments) for at in range(arguments.orders)
            ]
    print(f"in order: {orders[0][0]:.2f} × plain, again {orders[0][1]:.2f}")
    first, again = (statistics.geometric_mean(part) for part in zip(*orders, strict=True))
    print(f"all orders: {first:.2f} × plain, again {again:.2f}")


def _round_twice(
    tokenizer: Tokenizer, answers: Sequence[_Written], order: int, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Mean speedups of an order of the answers, and of the same once more."""
    machine = _Machine(tokenizer, arguments.token)
    ordered = list(answers)
    if order:
        random.Random(order).shuffle(ordered)
    first, again = (
        statistics.geometric_mean([machine.speedup(one) for one in ordered]) for _ in range(2)
    )
    return first, again


def _written(session: Session, task: Extraction, tokens: int) -> _Written:
    reply, grammar = new_reply(), Grammar(GrammarKind.JSON_SCHEMA, task.schema)
    prompt, _ = session.prompt(Conversation("", [Message("user", task.question)]))
    options = ReplyOptions(grammar=grammar)
    for _ in session.stream(prompt, _GREEDY, tokens, reply, lambda: False, options):
        pass
    return _Written(prompt, tuple(reply.token_ids), grammar)


if __name__ == "__main__":
    main()
