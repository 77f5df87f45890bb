"""Whether the error of a speedup is what it claims to be: twice the standard error.

python -m scripts.measure_speedup_error [MODEL] [--replies 60] [--tokens 200]

Plain replies are generated, and some of their steps, in a row as drafts are, are taken for drafted
ones. The true speedup is then exactly 1, and 95 % of the measured ones should be within their error
of it. Noise is learned from the other replies.
"""

import argparse
import math
import os
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from app.builtin_prompts import built_in_prompts
from app.chat.conversation import Conversation
from app.engine.metrics import ENOUGH_TOKENS, plain_rate
from app.engine.reply import new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.learned.speeds import PlainReplies
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics

_PLACEBOS = 6
"""Speedups taken from each reply, with other steps for drafts."""

_COSTS = CostModel({1: 1.0})
"""Never asked: every reply has plain steps of its own."""


def replies(session: Session, count: int, tokens: int) -> Iterator[list[Step]]:
    """Steps of plain replies to the built-in prompts in turn."""
    prompts = built_in_prompts()
    greedy = SamplingSettings(temperature=0.0)
    for number in range(count):
        text = prompts[number % len(prompts)].text
        prompt, _ = session.prompt(Conversation("", [Message("user", text)]))
        events = session.stream(prompt, greedy, tokens, new_reply(), lambda: False)
        yield [event for event, _ in events if isinstance(event, Step)]


def with_drafts(steps: Sequence[Step], chance: random.Random) -> Statistics:
    """Figures of a reply some of whose steps are taken for one drafted step each."""
    reply = Statistics(steps[0].at)
    rest = list(steps)
    reply.add(rest.pop(0))
    while rest:
        count = chance.choice((1, 1, 1, 1, 2, 4, 8))
        taken, rest = rest[:count], rest[count:]
        tokens = tuple(token for step in taken for token in step.tokens)
        accepted = len(tokens) - 1
        reply.add(
            replace(taken[-1], tokens=tokens, drafter="none", drafted=accepted, accepted=accepted)
        )
    return reply


def main() -> None:
    """Generate the replies, and print noise, spread and coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--replies", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=200)
    given = parser.parse_args()
    with ExitStack() as stack:
        os.environ[HOME_VARIABLE] = stack.enter_context(tempfile.TemporaryDirectory())
        options = SessionOptions(given.model, draft="off", ctx=2048)
        session = open_session(options, Paths.of_this_user(), print)
        stack.callback(session.close)
        said = list(replies(session, given.replies, given.tokens))
        learned = session.plain_replies
    report([steps for steps in said if len(steps) >= ENOUGH_TOKENS], learned)


def report(said: Sequence[Sequence[Step]], learned: PlainReplies) -> None:
    """Print how often the error covers the true speedup."""
    rates = [(len(steps) - 1) / (steps[-1].at - steps[0].at) for steps in said]
    chance, errors, hits = random.Random(1), list[float](), 0
    for steps in said:
        for _ in range(_PLACEBOS):
            reply = with_drafts(steps, chance)
            plain = plain_rate(_COSTS, reply, learned.noise)
            rate = reply.decode_tokens_per_second
            if plain is None or plain.error is None or rate is None:
                continue
            speedup = rate / plain.tokens_per_second
            errors.append(2.0 * speedup * plain.error)
            hits += abs(speedup - 1.0) <= errors[-1]
    print(f"{len(said)} plain replies, {statistics.median(rates):.1f} tok/s")
    print(f"standard deviation of whole replies {statistics.stdev(map(math.log, rates)):.3f}")
    print(f"spread of those in a row {learned.spread:.3f}, noise of a second {learned.noise:.3f}")
    print(f"error ± {statistics.median(errors):.3f}, right in {hits} of {len(errors)}", end=": ")
    print(f"{100 * hits / len(errors):.0f} %")


if __name__ == "__main__":
    main()
