"""Measure passes of a model larger than a memory limit: naively mapped, held in part, streamed.

Run: `python -m scripts.streaming.measure_streaming MODEL --limit 900 --hold 600`.

Each way runs in a process of its own, in a control group with the limit (see memory_group). The
file is dropped from the system's cache before each, since cache counts towards the group that read
it first: no other program may have it mapped. Greedy answers of all ways must agree.

- naive: the file is mapped and nothing else is done.
- locked: what the plan holds is locked.
- streamed: as the app does it: locked, read ahead, dropped behind.
- unlocked: the same where locks are refused.

Passes go on in a text: with experts, a pass reads those that its tokens choose, and the tokens of
the pass before would find theirs in memory. Beside the MB that a pass read are those expected.
"""

import argparse
import errno
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.builtin_prompts import built_in_prompts
from backends.base import Context
from scripts.streaming.memory_group import GroupRefusedError, drop_from_cache, memory_group, run_in

_WAYS = ("naive", "locked", "streamed", "unlocked")
_PROMPT = "The old lighthouse keeper said that"
_ANSWER_TOKENS = 6


def main() -> None:
    """Run every way in a group, or one way in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", type=int, default=900, help="MB the process may hold")
    parser.add_argument("--hold", type=int, default=600, help="MB of weights to hold")
    parser.add_argument("--passes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=_WAYS)
    parser.add_argument("--here", action="store_true", help="the first way, in this process")
    arguments = parser.parse_args()
    if arguments.here:
        figures = _measure(arguments)
        print(json.dumps(figures))
        return
    print(f"{arguments.model.name}: limit {arguments.limit} MB, {arguments.hold} MB held")
    try:
        for way in arguments.ways:
            _run_in_group(way, arguments.limit, sys.argv[1:])
    except GroupRefusedError as error:
        sys.exit(f"no memory limit can be set here: {error}")


def _run_in_group(way: str, megabytes: int, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "scripts.streaming.measure_streaming", *options]
    with memory_group(megabytes * 1_000_000) as group:
        code = run_in(group, [*command, "--here", "--ways", way])
    if code != 0:
        print(f"{way}: ended with code {code}")


def _measure(arguments: argparse.Namespace) -> dict[str, object]:
    """Load in one way and time passes; the least, the median and MB read of each length."""
    from backends import llamacpp
    from backends.streaming.disk_speed import measured_disk_speed
    from backends.streaming.weight_plan import lock_plan, weight_layout

    way = arguments.ways[0]
    drop_from_cache(arguments.model)
    disk = measured_disk_speed(arguments.model)
    _choose(way)
    start = time.perf_counter()
    held = 0 if way == "naive" else arguments.hold * 1_000_000
    model = llamacpp.load(arguments.model, lock_bytes=held)
    loaded = time.perf_counter() - start
    context = model.open(512)
    ids = _greedy(context, model.tokenizer.encode(_PROMPT, special=False))
    passes: dict[int, dict[str, float]] = {}
    prompts = " ".join(prompt.text for prompt in built_in_prompts())
    text = itertools.cycle(model.tokenizer.encode(prompts, special=False))
    planned = lock_plan(weight_layout(arguments.model), held)
    for count in arguments.passes:
        timed = [_timed(context, text, count) for _ in range(arguments.repeats)]
        seconds = [each for each, _ in timed]
        passes[count] = {
            "least": round(min(seconds), 3),
            "median": round(statistics.median(seconds), 3),
            "read_mb": round(statistics.median(read for _, read in timed)),
            "expected_mb": round(planned.read_bytes(count) / 1e6),
        }
    model.close()
    return {
        "way": way,
        "disk_mb_per_second": disk and round(disk.bytes_per_second / 1e6),
        "load_seconds": round(loaded, 2),
        "locked_mb": round(model.info.locked_bytes / 1e6),
        "expected_read_mb": round(model.info.streamed_bytes_per_token / 1e6),
        "ids": ids,
        "passes": passes,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _choose(way: str) -> None:
    """Switch off what a way goes without."""
    from backends.streaming import memory_pages as memory_lock
    from backends.streaming import streamed_weights

    if way in ("naive", "locked"):
        streamed_weights.StreamedWeights.follow = lambda self: None  # noqa: ARG005
    if way == "unlocked":

        def refuse(_address: int, _size: int) -> None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        memory_lock.lock = refuse


def _greedy(context: Context, prompt: Sequence[int]) -> list[int]:
    rows, ids = context.forward(prompt, 1), list[int]()
    for _ in range(_ANSWER_TOKENS):
        ids.append(int(rows[0].argmax()))
        rows = context.forward(ids[-1:], 1)
    return ids


def _timed(context: Context, text: Iterator[int], count: int) -> tuple[float, float]:
    """Seconds of a pass over the next tokens of a text, and MB read from disk in it."""
    context.truncate(4)
    tokens = list(itertools.islice(text, count))
    before, start = _read_bytes(), time.perf_counter()
    context.forward(tokens, 1)
    return time.perf_counter() - start, (_read_bytes() - before) / 1e6


def _read_bytes() -> int:
    """Bytes this process has had read from disk, 0 where the system does not count them."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


if __name__ == "__main__":
    main()
