"""Measures what the server costs against `ask`: python -m scripts.serve.measure_server [GGUF].

Both run at the same time, a server as a program of its own and a session in this one as `ask` has
it, and answer the built-in prompts in turn: one while the other waits, and the other way round with
the next prompt. Reported are the ratio of their decode rates, and how long after the engine's first
token a client has its text.
"""

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from app.builtin_prompts import built_in_prompts
from app.chat.conversation import Conversation
from app.engine.reply import new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings
from models.stores.available_models import demo_path
from scripts.serve.running_server import StreamedReply, free_port, running_server, streamed_reply

_CONTEXT = 2048
_WARM_UP, _WARM_UP_TOKENS = "Write a line about the sea.", 16


class Turns:
    """A server and a session that answer the same prompts, one after the other."""

    def __init__(self, address: str, session: Session, tokens: int) -> None:
        self._address = address
        self._session = session
        self._tokens = tokens
        self.served: list[StreamedReply] = []
        self.rates: list[float] = []
        """Decode rates of the session, of the same prompts."""

    def answer(self, text: str, *, first: bool) -> None:
        """Have both answer; first: whether the server begins."""
        if first:
            self._serve(text)
        self.rates.append(answered_rate(self._session, text, self._tokens))
        if not first:
            self._serve(text)

    def _serve(self, text: str) -> None:
        self.served.append(streamed_reply(self._address, text, self._tokens))

    @property
    def ratios(self) -> list[float]:
        """Decode rate of the server by that of the session, for each prompt."""
        pairs = zip(self.served, self.rates, strict=True)
        return [reply.rate / rate for reply, rate in pairs]


def main() -> None:
    """Measure and print; ends with 1 if the server costs more than 2 %, or 20 ms at the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", nargs="?", type=Path, default=demo_path())
    parser.add_argument("--draft", default="off")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=12)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ[HOME_VARIABLE] = home
        turns, engine = _measured(given, Path(home, "first_tokens"))
    ratios = turns.ratios
    delays = [one.first_at - at for one, at in zip(turns.served, engine, strict=True)]
    ratio = statistics.geometric_mean(ratios)
    print(f"server / ask: {ratio:.4f} ({min(ratios):.3f} to {max(ratios):.3f})")
    print(
        f"first text after the engine's first token: median {1e3 * statistics.median(delays):.1f} "
        f"ms, at most {1e3 * max(delays):.1f} ms"
    )
    sys.exit(1 if ratio < 0.98 or max(delays) > 0.02 else 0)


def _measured(given: argparse.Namespace, first_tokens: Path) -> tuple[Turns, list[float]]:
    """The answers, and when the server's engine had the first token of each of its own."""
    port = free_port()
    options = ["--model", str(given.gguf), "--draft", given.draft, "--ctx", str(_CONTEXT)]
    command = [sys.executable, "-m", "scripts.serve.timed_server", str(first_tokens), "serve"]
    with (
        running_server([*command, *options, "--port", str(port)], port) as address,
        closing(_session(given)) as session,
    ):
        Turns(address, session, _WARM_UP_TOKENS).answer(_WARM_UP, first=True)
        first_tokens.write_text("", encoding="utf-8")
        turns = Turns(address, session, given.tokens)
        for number, prompt in enumerate(built_in_prompts()[: given.prompts]):
            turns.answer(prompt.text, first=number % 2 == 0)
            rates = f"{turns.served[-1].rate:.1f} / {turns.rates[-1]:.1f}"
            print(f"{prompt.kind}: {rates} tok/s", flush=True)
        times = first_tokens.read_text(encoding="utf-8").split()
    return turns, [float(at) for at in times]


def _session(given: argparse.Namespace) -> Session:
    options = SessionOptions(str(given.gguf), given.draft, ctx=_CONTEXT)
    return open_session(options, Paths.of_this_user(), lambda _: None)


def answered_rate(session: Session, text: str, max_tokens: int) -> float:
    """Answer as `ask` does; returns the decode rate that it reports."""
    reply = new_reply()
    prompt, _ = session.prompt(Conversation("", [Message("user", text)]))
    greedy = SamplingSettings(temperature=0.0)
    for _ in session.stream(prompt, greedy, max_tokens, reply, lambda: False):
        pass
    rate = reply.statistics.decode_tokens_per_second
    assert rate is not None
    return rate


if __name__ == "__main__":
    main()
