"""Measure drafting here for a model elsewhere: two processes of this machine, and a slow wire.

Run: `python -m scripts.measure_elsewhere TARGET DRAFT [--trips 1,10,30,100]`.

For each trip (there and back, in ms) a session without drafters and one with DRAFT answer the same
prompts in turns, greedily. It prints passes as they were measured through the wire, the gain, and
the gain that these costs lead to expect of the same passes: the costs are those known before the
answer began.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Thread

from app.chat.conversation import Conversation
from app.engine.remote_opening import open_verified
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.chat.message import Message
from decoding.events import Step
from decoding.sampling.distribution import SamplingSettings

PORT, CONTEXT = 47821, 512
PROMPTS = (
    "Repeat this list three times, word for word: apples, pears, plums, cherries, grapes, figs.",
    "Write the numbers from one to thirty in words, one on each line.",
    "Write a short story about a cat, and then write the same story again, word for word.",
)
GREEDY = SamplingSettings(temperature=0.0)


class Wire:
    """Passes bytes on to a port of this machine, each way half a trip later."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port, self._half = port, seconds / 2
        self.port = 0
        self._loop = asyncio.new_event_loop()
        Thread(target=self._run, daemon=True).start()
        while not self.port:
            time.sleep(0.01)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._joined, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._loop.run_forever()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self._loop.call_later(self._half, writer.write, data)
        self._loop.call_later(self._half, writer.close)


@dataclass
class Measured:
    """Of several answers: their tokens, and seconds as measured and as costs led to expect."""

    tokens: int = 0
    seconds: float = 0.0
    expected: float = 0.0
    steps: list[Step] = field(default_factory=list[Step])


def answered(session: Session, text: str, tokens: int, told: Measured) -> list[int]:
    """Answer a prompt, and add what it took from the first token on."""
    request = Request(Conversation("", [Message("user", text)]), GREEDY, tokens)
    prompt, _ = session.prompt(request)
    controller = session.drafting.controller
    known = {}
    if controller is not None:
        known = {n: controller.costs.seconds(n) for n in range(1, controller.costs.largest + 1)}
    reply = Reply(request)
    events = session.stream(prompt, reply, lambda: False)
    steps = [event for event in events if isinstance(event, Step)]
    told.steps += steps[1:]
    told.tokens += sum(len(step.tokens) for step in steps[1:])
    told.seconds += steps[-1].at - steps[0].at
    if known:
        told.expected += sum(known[step.passed] + step.draft_seconds for step in steps[1:])
    return reply.token_ids


@contextmanager
def serving(target: str, home: Path) -> Generator[None]:
    command = [sys.executable, "specchat.py", "serve", "--model", target, "--draft", "off"]
    command += ["--ctx", str(CONTEXT), "--port", str(PORT)]
    environment = {**os.environ, "SPECCHAT_HOME": str(home)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()  # its address, once it answers
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def measure(trip: float, draft: str, tokens: int, paths: Paths) -> None:
    wire = Wire(PORT, trip / 1000)
    url = f"http://127.0.0.1:{wire.port}"
    options = SessionOptions(draft=draft, url=url, ctx=CONTEXT)
    plain, drafted, ratio = Measured(), Measured(), list[float]()
    with (
        closing(open_verified(options, paths, lambda _: None)) as drafting,
        closing(
            open_verified(SessionOptions(draft="off", url=url, ctx=CONTEXT), paths, lambda _: None)
        ) as alone,
    ):
        controller = drafting.drafting.controller
        assert controller is not None, drafting.drafting.missing
        answered(drafting, "Hello.", 24, Measured())
        costs = {n: 1000 * controller.costs.seconds(n) for n in (1, 2, 4, 8)}
        for prompt in PROMPTS:
            before = plain.seconds, drafted.seconds
            said = answered(alone, prompt, tokens, plain)
            assert answered(drafting, prompt, tokens, drafted) == said, "they are not the model's"
            ratio.append((plain.seconds - before[0]) / (drafted.seconds - before[1]))
        status = drafting.drafting.status
        single = plain.seconds / plain.tokens
        shown = ", ".join(f"{n}: {cost:.0f}" for n, cost in costs.items())
        lengths = [step.drafted for step in drafted.steps if step.drafted]
        print(
            f"trip {trip:5.0f} ms | passes {shown} ms | plain {1 / single:.2f} tokens/s"
            f" | gain {plain.seconds / drafted.seconds:.3f} (median {median(ratio):.3f})"
            f" | seconds {drafted.seconds:.2f}, expected {drafted.expected:.2f}"
            f" = {drafted.seconds / drafted.expected:.3f}"
            f" | drafts {len(lengths)} of {sum(lengths)} tokens,"
            f" {sum(step.accepted for step in drafted.steps)} accepted"
            f" | {status.state} {status.reason}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--trips", default="0,10,30,100")
    parser.add_argument("--tokens", type=int, default=96)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with serving(asked.target, home / "there"):
            for trip in asked.trips.split(","):
                here = Paths(home / trip / "config", home / trip / "data", home / trip / "cache")
                measure(float(trip), asked.draft, asked.tokens, here)


if __name__ == "__main__":
    main()
