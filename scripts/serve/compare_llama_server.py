"""Compares `specchat serve` with llama-server: same model, same requests, one run.

Run: python -m scripts.serve.compare_llama_server LLAMA_SERVER MODEL [--drafter GGUF]
[--prompts N] [--tokens N] [--rounds N] [--threads N] [--ways WAY ...]

Build LLAMA_SERVER from the sources of the binding, so that both run the same kernels:

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==VERSION && tar xf …
    cmake -S scripts/serve/llama_server -B BUILD -DSDIST=llama_cpp_python-VERSION -DLIBRARIES=…
    cmake --build BUILD --target llama-server

Each way answers the built-in prompts at temperature 0, in rounds of a few prompts each, as the
speed of machines drifts. Each has a program of its own in each round; each of ours has a home of
its own, where costs are measured once, as on a user's machine. No prompt is asked twice. Rates are
those that a client sees, from the first text to the last. It ends with 1 if our plain rate is below
llama-server's, or our best way of drafting is not above each of its ways, in geometric mean over
the prompts.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from app.bench.llama_server import free_port
from app.builtin_prompts import BuiltInPrompt, built_in_prompts
from app.paths import HOME_VARIABLE
from scripts.serve.running_server import (
    SPECCHAT,
    StreamedReply,
    running_server,
    streamed_reply,
)

_CONTEXT = 2048
_OURS, _THEIRS = "specchat", "llama-server"
_PLAIN = f"{_OURS} off"
_THEIR_PLAIN = f"{_THEIRS} none"
_THEIR_NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_DRAFT_LENGTHS = (2, 4, 8, 16)
"""Most tokens that llama-server's draft model drafts; it has no way to choose by itself."""

_WARM_UP_TOKENS = 16

Replies = Mapping[str, Sequence[StreamedReply]]


def main() -> None:
    """Run every way and compare their rates."""
    given = _arguments()
    ways: list[str] = given.ways or _ways(given.drafter)
    prompts = built_in_prompts()[: given.prompts]
    replies: dict[str, list[StreamedReply]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        homes = {way: Path(folder, str(number)) for number, way in enumerate(ways)}
        for number in range(given.rounds):
            for way, home in homes.items():
                replies[way] += _answered(way, prompts[number :: given.rounds], home, given)
                print(f"round {number + 1}, {way}: {_rates(replies[way])}", flush=True)
    sys.exit(1 if _compared(replies) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("llama_server", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--drafter", type=Path, help="a small model that drafts in both")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ways", nargs="+", metavar="WAY", help='such as "specchat auto"')
    return parser.parse_args()


def _ways(drafter: Path | None) -> list[str]:
    """Ways to answer: one's program, and how it drafts."""
    ours, theirs = ["off", "auto"], ["none", *_THEIR_NGRAMS]
    if drafter is not None:
        ours.append(f"lookup,ngram,{drafter}")
        theirs += [f"draft-simple-{length}" for length in _DRAFT_LENGTHS]
    return [f"{_OURS} {how}" for how in ours] + [f"{_THEIRS} {how}" for how in theirs]


def _answered(
    way: str, prompts: Sequence[BuiltInPrompt], home: Path, given: argparse.Namespace
) -> list[StreamedReply]:
    """The replies of one way, from a server that has not read these prompts."""
    port = free_port()
    program, how = way.split(" ", 1)
    command = _our_command(how, given) if program == _OURS else _their_command(how, given)
    environment = os.environ | {HOME_VARIABLE: str(home)}
    with running_server([*command, "--port", str(port)], port, environment) as address:
        streamed_reply(address, "Write a line about the sea.", _WARM_UP_TOKENS)
        return [streamed_reply(address, prompt.text, given.tokens) for prompt in prompts]


def _our_command(how: str, given: argparse.Namespace) -> list[str]:
    command = [SPECCHAT, "serve", "--model", str(given.model), "--draft", how, "--offline"]
    return [*command, "--ctx", str(_CONTEXT), "--threads", str(given.threads)]


def _their_command(how: str, given: argparse.Namespace) -> list[str]:
    command = [str(given.llama_server), "-m", str(given.model), "-c", str(_CONTEXT), "-np", "1"]
    command += ["-t", str(given.threads), "-fit", "off", "--cache-ram", "0", "--jinja"]
    if how.startswith("draft-simple-"):
        kind, _, length = how.rpartition("-")
        command += ["-md", str(given.drafter), "-td", str(given.threads)]
        return [*command, "--spec-type", kind, "--spec-draft-n-max", length]
    return [*command, "--spec-type", how]


def _compared(replies: Replies) -> list[str]:
    """Print all ratios; returns what was missed."""
    ours = [way for way in replies if way.startswith(_OURS)]
    theirs = [way for way in replies if way.startswith(_THEIRS)]
    for way in replies:
        words = [f"{way}: {_rates(replies[way])}"]
        if way != _PLAIN and _PLAIN in replies:
            words.append(f"{_ratio(replies, way, _PLAIN):.3f} x our plain")
            words.append(_agreeing(replies[way], replies[_PLAIN]))
        print(", ".join(words))
    missed: list[str] = []
    if _PLAIN in replies and _THEIR_PLAIN in replies:
        ratio = _ratio(replies, _PLAIN, _THEIR_PLAIN)
        print(f"plain: {ratio:.3f} x llama-server's")
        missed += ["plain"] if ratio < 1 else []
    drafting = [way for way in ours if way != _PLAIN]
    for their in theirs:
        ratios = {way: _ratio(replies, way, their) for way in drafting}
        print(f"{their}: " + ", ".join(f"{way} {ratio:.3f} x" for way, ratio in ratios.items()))
        missed += [their] if ratios and max(ratios.values()) <= 1 else []
    print(f"missed: {', '.join(missed) or 'nothing'}")
    return missed


def _ratio(replies: Replies, way: str, base: str) -> float:
    """Geometric mean over the prompts of how much faster a way was."""
    ratios = [one.rate / other.rate for one, other in zip(replies[way], replies[base], strict=True)]
    return prod(ratios) ** (1 / len(ratios))


def _rates(replies: Sequence[StreamedReply]) -> str:
    rates = [reply.rate for reply in replies]
    mean = prod(rates) ** (1 / len(rates))
    return f"{mean:.1f} tok/s ({min(rates):.1f} to {max(rates):.1f})"


def _agreeing(replies: Sequence[StreamedReply], plain: Sequence[StreamedReply]) -> str:
    same = sum(one.text == other.text for one, other in zip(replies, plain, strict=True))
    return f"{same} of {len(plain)} texts are those of our plain"


if __name__ == "__main__":
    main()
