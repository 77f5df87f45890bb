"""Measures what a pass over several tokens costs: alone, after others, after many tokens held.

Run: `python -m scripts.measure_passes MODEL --json FILE`.

MODEL is a GGUF file or an MLX folder. The file is what others can learn from: figures, and facts
of the machine without names of users. docs/speed/on-a-gpu.md tells where to send it.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.cli.report_file import machine, version
from backends.base import Model, ModelInfo
from decoding.estimation.calibration import MOST_TOKENS, calibrate, calibrate_held
from decoding.estimation.cost import CostModel, Measured
from decoding.prefill import prefill

_TRIES = 5
"""After so many measurements of which the timings disagree, a depth is left out."""

_TEXT = "The quick brown fox jumps over the lazy dog and runs along the river until the evening. "


def load(path: Path, gpu_layers: int | None, threads: int | None) -> Model:
    """Load a model by the engine of its form."""
    if path.is_dir():
        from backends import mlx

        return mlx.load(path)
    from backends import llamacpp

    return llamacpp.load(path, gpu_layers=gpu_layers, threads=threads)


def measured(model: Model, n_ctx: int, clock: Callable[[], float]) -> Measured:
    """Seconds of passes, as they are measured before a first reply."""
    tokens = model.tokenizer.encode(_TEXT * MOST_TOKENS, special=False)
    with closing(model.open(n_ctx)) as context:
        return calibrate(context, tokens, clock, on_gpu=not model.info.uses_processor)


def with_held(
    model: Model, costs: Measured, depths: Sequence[int], clock: Callable[[], float]
) -> Measured:
    """The same, with what passes take longer after so many tokens, ascending."""
    tokens = model.tokenizer.encode(_TEXT, special=False)
    tokens *= max(depths, default=0) // len(tokens) + MOST_TOKENS
    held = dict(costs.held)
    with closing(model.open(max(depths) + MOST_TOKENS)) as context:
        for depth in depths:
            for _ in prefill(context, tokens[:depth]):
                pass
            for _ in range(_TRIES):
                with closing(model.open(2 * MOST_TOKENS)) as empty:
                    if found := calibrate_held(context, empty, costs, tokens, clock):
                        held[depth] = found
                        break
    return replace(costs, held=held)


def held_table(costs: Measured) -> Iterator[str]:
    """Rows of a table: plain steps at each depth, measured and as predicted from lesser ones."""
    yield "  held  tokens  measured  predicted  shifted as a whole"
    for depth in costs.held:
        lesser = {least: costs.held[least] for least in costs.held if least < depth}
        now, before = (CostModel(replace(costs, held=one)) for one in (costs.held, lesser))
        for one in (now, before):
            one.hold(depth)
        for tokens in costs.held[depth]:
            whole = costs.seconds[tokens] / costs.seconds[1]
            steps = now.relative(tokens), before.relative(tokens), whole
            yield f"{depth:>6}  {tokens:>6}  " + "  ".join(f"{one:>9.2f}" for one in steps)


def as_json(info: ModelInfo, costs: Measured) -> dict[str, Any]:
    """Figures of a model; keys of passes are numbers of tokens."""
    return {
        "model": info.path.name,
        **{
            name: getattr(info, name)
            for name in (
                *("architecture", "quantization", "parameters", "weight_bytes", "n_layers"),
                *("engine", "device", "threads", "gpu_layers"),
            )
        },
        "seconds": dict(costs.seconds),
        "changes": dict(costs.changes),
        "switching": costs.switching,
        "unsure": dict(costs.unsure),
        "held": {depth: dict(extra) for depth, extra in costs.held.items()},
    }


def table(info: ModelInfo, costs: Measured) -> Iterator[str]:
    """Rows of a table: a pass's tokens, its time, and that of a change to it."""
    yield f"{info.path.name}: {info.quantization}, {info.device}"
    yield "tokens       ms  plain steps  change, ms"
    for tokens, seconds in sorted(costs.seconds.items()):
        change = f"{1e3 * costs.changes[tokens]:.2f}" if costs.changes else "none"
        note = "  timings disagree" if tokens in costs.unsure else ""
        steps = seconds / costs.seconds[1]
        yield f"{tokens:>6}  {1e3 * seconds:>7.2f}  {steps:>11.2f}  {change:>10}{note}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure models, print a table of each, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="+")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--gpu-layers", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--held", type=int, nargs="*", default=[], help="tokens held, ascending")
    parser.add_argument("--processor-time", action="store_true", help="for a busy machine")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    found: list[dict[str, Any]] = []
    for path in arguments.model:
        model = load(path, arguments.gpu_layers, arguments.threads)
        costs = measured(model, arguments.ctx, clock)
        if arguments.held:
            costs = with_held(model, costs, arguments.held, clock)
        found.append(as_json(model.info, costs))
        print(*table(model.info, costs), *(held_table(costs) if costs.held else ()), "", sep="\n")
        model.close()
    if arguments.json:
        facts = {"schema": 1, "specchat": version("specchat"), "machine": machine(None)}
        text = json.dumps({**facts, "models": found}, indent=1)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
