"""What taking turns costs conversations: `python -m scripts.measure_turns MODEL`.

A long conversation, a short one, then the long one again with one more question: the time to the
first token of that, where the long one was kept in memory and where it was not, and of copying it.
"""

import argparse
import os
import statistics
import tempfile
import time
from contextlib import closing
from typing import cast

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request
from app.engine.engine import Engine
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.prefill import prefill
from decoding.sampling.settings import SamplingSettings

_SETTINGS = SamplingSettings(temperature=0.0)
_SHORT = [Message("user", "Write a title of four words for a chat about rivers.")]
_ROUNDS = 3


def conversation(words: int) -> list[Message]:
    """A long question."""
    text = " ".join(f"Entry {number} says nothing new." for number in range(words // 5))
    return [Message("user", text)]


def ask(engine: Engine, messages: list[Message]) -> Answer:
    """One answer of a few tokens."""
    answer = engine.ask(Request(Conversation("", messages), _SETTINGS, 4))
    answer.wait(3600)
    if answer.error is not None:
        raise answer.error
    return answer


def turns(options: SessionOptions, messages: list[Message], memory: int) -> tuple[float, int, int]:
    """Seconds to the first token of the long one's second answer, its cached and prompt tokens."""
    os.environ["SPECCHAT_PROMPT_MEMORY"] = str(memory)
    engine = Engine(options, Paths.of_this_user())
    engine.start()
    try:
        ask(engine, messages)
        ask(engine, _SHORT)
        more = [*messages, Message("assistant", "I see."), Message("user", "Which is the last?")]
        metrics = ask(engine, more).metrics
    finally:
        engine.close(60)
    assert metrics is not None
    seconds = cast("float", metrics.ttft_seconds)
    return seconds, metrics.cached_prompt_tokens, metrics.prompt_tokens


def copies(options: SessionOptions, messages: list[Message]) -> str:
    """Size of a copy of the long one, and the times to make and to restore it."""
    with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
        tokens = session.prompt(Conversation("", messages))[0].tokens
        size = 0
        making: list[float] = []
        restoring: list[float] = []
        with session.context.use() as context:
            for _ in prefill(context, tokens):
                pass
            size = 0
            for _ in range(_ROUNDS):
                begun = time.perf_counter()
                state = context.save()
                made = time.perf_counter()
                size = state.size
                context.restore(tokens, state)
                making.append(made - begun)
                restoring.append(time.perf_counter() - made)
    made, restored = statistics.median(making), statistics.median(restoring)
    return (
        f"{len(tokens):,} tokens, {size / 1e6:,.0f} MB: copied in {1000 * made:,.0f} ms, "
        f"restored in {1000 * restored:,.0f} ms"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--words", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["SPECCHAT_HOME"] = home
        blocked = Paths.of_this_user().saved_states  # nothing comes back by way of the disk
        blocked.parent.mkdir(parents=True)
        blocked.touch()
        options = SessionOptions(model=arguments.model, draft="off")
        messages = conversation(arguments.words)
        print(copies(options, messages), flush=True)
        for memory in (2048, 0):
            seconds, cached, whole = turns(options, messages, memory)
            what = "kept in memory" if memory else "not kept"
            print(
                f"{what}: first token after {seconds:.2f} s, {cached:,} of {whole:,} tokens cached",
                flush=True,
            )


if __name__ == "__main__":
    main()
