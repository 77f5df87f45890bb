"""What passes cost, measured once per model, engine, device and threads, and kept on disk."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.paths import Paths
from app.prompts import built_in_prompts
from app.run_key import run_key
from app.target_context import TargetContext
from backends.base import Context, ContextFacts, Model, ModelInfo
from backends.runner import Runner
from decoding.calibration import MOST_TOKENS, calibrate, ends_early
from decoding.cost import CostModel, DraftCost, Measured
from models.json_file import read_object, write_object

SCHEMA = 2

CONTEXT = 2 * MOST_TOKENS
"""Tokens of a context in which passes are measured."""


@dataclass(frozen=True, slots=True)
class Calibrations:
    """The store below the cache folder; what cannot be used is measured again, silently."""

    paths: Paths
    notify: Callable[[str], None]

    def target(self, model: Model, context: TargetContext) -> CostModel:
        """Costs of a target's passes.

        Raises:
            ContextInUseError: they are to be measured, a reply runs the context, and there is no
                memory for another.
            ModelError: the engine failed.
        """
        measured = self.measured_target(model, context)
        return CostModel(measured.seconds, measured.switching)

    def measured_target(self, model: Model, context: TargetContext) -> Measured:
        """The same as it was measured.

        Raises:
            ContextInUseError, ModelError: as of target.
        """
        name = model.info.name
        return self._measured(model, context, lambda: context.for_measuring(CONTEXT), name)

    def drafter(self, model: Model, context: Context, name: str) -> DraftCost:
        """What a drafter takes to draw a token, and to read one among many.

        name: what the user knows it by. Its context is left empty.

        Raises:
            ModelError: the engine failed.
        """
        return _draft_cost(self._measured(model, context, lambda: nullcontext(context), name))

    def known_drafter(self, path: Path, runner: Runner, variant: str = "") -> DraftCost | None:
        """What was measured of a model as it is run by a runner; None if nothing was."""
        known = _known(read_object(self._file(path, variant, runner)))
        return _draft_cost(known) if known else None

    def _measured(
        self,
        model: Model,
        facts: ContextFacts,
        for_measuring: Callable[[], AbstractContextManager[Context]],
        name: str,
    ) -> Measured:
        """What was found of a model's passes, now if it never was."""
        path = self.file(model.info)
        known = _known(read_object(path))
        if known is None or ends_early(known.seconds, facts):
            with for_measuring() as context:
                self.notify(f"measuring what {name} costs here")
                known = calibrate(context, _text(model))
            if known.is_steady:  # else it is measured again at the next start
                write_object(path, _record(model.info, known))
        return known

    def file(self, info: ModelInfo) -> Path:
        """Where the costs of a loaded model are kept."""
        return self._file(info.path, info.variant, Runner.of(info))

    def _file(self, path: Path, variant: str, runner: Runner) -> Path:
        return self.paths.calibrations / f"{run_key(path, variant, runner)}.json"


def _draft_cost(measured: Measured) -> DraftCost:
    largest = max(measured.seconds)
    return DraftCost(measured.seconds[1], measured.seconds[largest] / largest)


def _record(info: ModelInfo, measured: Measured) -> dict[str, Any]:
    facts = {"engine": info.engine, "device": info.device, "threads": info.threads}
    seconds = {str(n): value for n, value in measured.seconds.items()}
    return {"schema": SCHEMA, **facts, "seconds": seconds, "switching": measured.switching}


def _known(kept: dict[str, Any]) -> Measured | None:
    """What a file holds, None where it makes no sense."""
    try:
        points = {int(n): float(value) for n, value in kept["seconds"].items()}
        switching = float(kept["switching"])
    except (KeyError, AttributeError, TypeError, ValueError):
        return None
    sound = all(0 < n <= MOST_TOKENS for n in points) and all(
        value > 0.0 and math.isfinite(value) for value in points.values()
    )
    if not sound or 1 not in points or not 0.0 <= switching < 1.0 or kept.get("schema") != SCHEMA:
        return None
    return Measured(points, switching)


def _text(model: Model) -> list[int]:
    """Ordinary text to time passes on; what it says counts where experts are chosen by it."""
    text = " ".join(prompt.text for prompt in built_in_prompts())
    tokens = list(model.tokenizer.encode(text, special=False))[: 4 * MOST_TOKENS]
    return tokens * (2 * MOST_TOKENS // max(len(tokens), 1) + 1)
