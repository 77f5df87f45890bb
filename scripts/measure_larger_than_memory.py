"""Measure what drafting is worth for a model larger than a memory limit, against llama-server.

Run: `python -m scripts.measure_larger_than_memory MODEL DRAFTER [--limit 900]
[--llama-server PROGRAM]`.

The twelve built-in prompts are answered by each way, in a process and a control group of its own
(see memory_group), in rounds of a few prompts each, as the speed of shared disks drifts. The
model's file is dropped from the system's cache before each, since cache counts towards the group
that read it first: no other program may have it mapped.

- naive: the file is mapped and nothing else is done, as other programs do.
- plain: as the app streams it, without drafting.
- drafted, drafted-0.8: the same with the drafter, at temperatures 0 and 0.8.
- lookup, auto: the same with other drafters, at temperature 0.
- server-N: llama-server with the drafter drafting up to N tokens at temperature 0.

Greedy answers of all ways of specchat must agree, but for near-ties.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.chat.conversation import Conversation
from app.engine.reply import Reply, Request
from app.engine.session_opening import open_session
from app.loading.session_options import STREAM_ON, SessionOptions
from app.paths import HOME_VARIABLE, Paths
from backends.chat.chat_template import Prompt
from backends.streaming.weight_plan import LockPlan, WeightLayout
from decoding.sampling.settings import SamplingSettings
from scripts.memory_group import JOIN, GroupRefusedError, drop_from_cache, memory_group, run_in
from scripts.prompts import tokenized

_OURS = ("naive", "plain", "drafted", "drafted-0.8", "lookup", "auto")
_SERVER = "server-"
_CONTEXT = 512
"""What the app chooses under such a limit; prompts and answers fit."""

_PORT = 18_430

_Prompt = tuple[str, list[int]]
"""Kind and tokens."""


def main() -> None:
    """Run every way in a group, or one way in this process, and compare their rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--limit", type=int, default=900, help="MB the process may hold")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--plain-tokens", type=int, help="of each answer without drafting")
    parser.add_argument("--prompts", type=int, default=12, help="of the built-in prompts")
    parser.add_argument("--rounds", type=int, default=3, help="that the prompts are divided into")
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--ways", nargs="+", default=list(_OURS))
    parser.add_argument("--llama-server", type=Path, help="its program")
    parser.add_argument("--here", type=Path, help="run the first way in this process, into a file")
    arguments = parser.parse_args()
    if arguments.here:
        arguments.here.write_text(json.dumps(_answer(arguments)), encoding="utf-8")
        return
    try:
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in arguments.ways}
        for number in range(arguments.rounds):
            arguments.round = number
            for way in arguments.ways:
                found[way].append(_in_group(way, arguments))
        _compare({way: _joined(parts) for way, parts in found.items()})
    except GroupRefusedError as error:
        sys.exit(f"no memory limit can be set here: {error}")


def _in_group(way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one way; prints them."""
    drop_from_cache(arguments.model)
    with memory_group(arguments.limit * 1_000_000) as group, tempfile.TemporaryDirectory() as home:
        if way.startswith(_SERVER):
            figures = _serve(way, arguments, group)
        else:
            found = Path(home) / "figures.json"
            command = [sys.executable, "-m", "scripts.measure_larger_than_memory"]
            command += [*sys.argv[1:], "--ways", way, "--here", str(found)]
            command += ["--round", str(arguments.round)]
            os.environ[HOME_VARIABLE] = home
            code = run_in(group, command)
            figures = json.loads(found.read_text()) if code == 0 else {"ended with code": code}
    print(json.dumps({"way": way} | {k: v for k, v in figures.items() if k != "ids"}), flush=True)
    return figures


def _answer(arguments: argparse.Namespace) -> dict[str, Any]:
    """Answer the prompts in this process; rates in tokens per second of decoding."""
    way = arguments.ways[-1]
    draft = {"drafted": str(arguments.drafter), "lookup": "lookup", "auto": "auto"}
    if way == "naive":
        _stream_naively()
    requested = draft.get(way.removesuffix("-0.8"), "off")
    options = SessionOptions(
        str(arguments.model), draft=requested, ctx=_CONTEXT, stream=STREAM_ON, offline=True
    )
    settings = SamplingSettings(0.8 if way.endswith("-0.8") else 0.0, seed=1)
    is_plain = requested == "off"
    tokens = arguments.plain_tokens if is_plain and arguments.plain_tokens else arguments.tokens
    start = time.perf_counter()
    session = open_session(options, Paths.of_this_user(), lambda _: None)
    loaded = time.perf_counter() - start
    rates, ids, steps = list[float](), list[list[int]](), 0
    shapes: dict[str, int] = {}
    for _, prompt in _of_round(tokenized(session.model), arguments):
        reply = Reply(Request(Conversation(), settings, tokens))
        for _ in session.stream(Prompt(prompt, ()), reply, lambda: False):
            pass
        ids.append(reply.token_ids)
        rates.append(reply.statistics.decode_tokens_per_second or 0.0)
        steps += reply.statistics.steps
        for shape, count in reply.statistics.steps_by_shape.items():
            shapes[shape] = shapes.get(shape, 0) + count
    info = session.model.info
    said = sum(len(one) for one in ids)
    session.close()
    return {
        "median": round(statistics.median(rates), 3),
        "rates": [round(rate, 3) for rate in rates],
        "tokens_per_step": round(said / max(steps, 1), 2),
        "shapes": shapes,
        "load_seconds": round(loaded, 1),
        "locked_mb": round(info.locked_bytes / 1e6),
        "notes": session.notes,
        "ids": ids,
    }


def _of_round(prompts: list[_Prompt], arguments: argparse.Namespace) -> list[_Prompt]:
    """Every so manieth prompt, so that each round has several kinds."""
    return prompts[: arguments.prompts][arguments.round :: arguments.rounds]


def _stream_naively() -> None:
    """Only map the file as usual: hold nothing, read nothing ahead and drop nothing."""
    from backends.llamacpp import loading as load_model
    from backends.streaming import streamed_weights

    planned = streamed_weights.lock_plan

    def hold_nothing(layout: WeightLayout, _budget_bytes: int) -> LockPlan:
        return planned(layout, 0)

    load_model.only_map = lambda _: None
    streamed_weights.lock_plan = hold_nothing
    streamed_weights.StreamedWeights.follow = lambda self: None  # noqa: ARG005


def _serve(way: str, arguments: argparse.Namespace, group: Path) -> dict[str, Any]:
    """Answer the prompts by llama-server; rates are its own of decoding."""
    longest = int(way.removeprefix(_SERVER))
    prompts = _prompts(arguments)
    with _server(arguments, group, longest) as ask:
        found = [
            ask(
                "completion",
                {
                    "prompt": prompt,
                    "n_predict": arguments.tokens,
                    "temperature": 0.0,
                    "top_k": 1,
                    "cache_prompt": False,
                },
            )
            for prompt in prompts
        ]
    rates = [one["timings"]["predicted_per_second"] for one in found]
    steps = sum(
        one["timings"]["predicted_n"] - one["timings"].get("draft_n_accepted", 0) for one in found
    )
    return {
        "median": round(statistics.median(rates), 3),
        "rates": [round(rate, 3) for rate in rates],
        "tokens_per_step": round(sum(one["timings"]["predicted_n"] for one in found) / steps, 2),
    }


@contextmanager
def _server(
    arguments: argparse.Namespace, group: Path, longest: int
) -> Generator[Callable[[str, Mapping[str, object]], dict[str, Any]]]:
    """A llama-server in the group, as a function that posts a request; it ends with the block."""
    command = [*JOIN, str(group)]
    command += [str(arguments.llama_server), "-m", str(arguments.model), "--port", str(_PORT)]
    command += ["-c", str(_CONTEXT), "-np", "1", "--no-warmup", "--no-repack", "--no-webui"]
    command += ["-fit", "off", "--cache-ram", "0"]
    if longest:
        command += ["-md", str(arguments.drafter), "--spec-draft-n-max", str(longest)]
        command += ["--spec-type", "draft-simple"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_ready(process)
            yield _post
        except (OSError, RuntimeError):
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)


def _post(path: str, body: Mapping[str, object]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{_PORT}/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=1800) as answer:
        return json.loads(answer.read())


def _prompts(arguments: argparse.Namespace) -> list[list[int]]:
    """The prompts in tokens, by the drafter, which has the model's vocabulary and template."""
    from backends import llamacpp

    model = llamacpp.load(arguments.drafter)
    try:
        return [prompt for _, prompt in _of_round(tokenized(model), arguments)]
    finally:
        model.close()


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates and answers of all rounds."""
    rates = [rate for part in parts for rate in part.get("rates", [])]
    joined: dict[str, Any] = {"ids": [ids for part in parts for ids in part.get("ids", [])]}
    return joined | ({"median": statistics.median(rates)} if rates else {})


def _compare(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print each way's rate in those of naive and plain decoding, and differing greedy answers."""
    medians = {way: figures["median"] for way, figures in found.items() if "median" in figures}
    for way, median in medians.items():
        parts = [f"{way}: {median:.3g} tok/s"]
        parts += [
            f"{median / medians[base]:.2f} x {base}"
            for base in ("naive", "plain")
            if base in medians and base != way
        ]
        print(", ".join(parts))
    greedy = {way: f["ids"] for way, f in found.items() if f["ids"] and "0.8" not in way}
    if "plain" in greedy:
        for way, ids in greedy.items():
            alike = sum(_agree(one, two) for one, two in zip(ids, greedy["plain"], strict=True))
            print(f"{way}: {alike} of {len(ids)} answers begin as plain decoding's do")


def _agree(one: Sequence[int], two: Sequence[int]) -> bool:
    shorter = min(len(one), len(two))
    return one[:shorter] == two[:shorter]


if __name__ == "__main__":
    main()
