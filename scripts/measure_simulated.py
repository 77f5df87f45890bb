"""What a drafter would gain under the controller on machines made of numbers.

Run: `python -m scripts.measure_simulated head=0.05:.56,.28,.14 lookup=0:.1,.05,.03`.

Each drafter is its name, what it takes to draft a token in plain steps (0: nothing; h100: what the
135M takes beside the body), and the shares of passes that keep a token at each place of a draft, as
`models train` measures them. In the simulated text each token is right alike, so often that a draft
keeps as many as measured. Curves: an assumed flat one, this project's two cores, and bodies of 8B
and 32B as recorded on an H100, where a change of a pass's width costs time.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decoding.estimation.acceptance import TRAINED_PRIOR
from tests.fixtures.simulated_text import constant
from tests.fixtures.simulator import CURVES, H100, Log, Machine, Recorded

_REPLY, _REPLIES, _SEEDS = 400, 5, 4

_FLAT = Recorded(1.0, CURVES["flat"], {})
BODIES = {
    "flat": _FLAT,
    "two cores": Recorded(1.0, CURVES["stepped"], {}),
    "8B, H100": H100["8B"],
    "32B, H100": H100["32B"],
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A drafter. cost: of a token, in plain steps; None for the 135M's on an H100."""

    name: str
    cost: float | None
    kept: tuple[float, ...]

    @classmethod
    def of(cls, text: str) -> "Simulated":
        """Raises ValueError where it is written otherwise."""
        name, _, figures = text.partition("=")
        cost, _, kept = figures.partition(":")
        shares = tuple(map(float, kept.split(",")))
        return cls(name, None if cost == "h100" else float(cost), shares)

    def cost_beside(self, body: Recorded) -> float | None:
        """Of a token; None where it costs nothing."""
        own = H100["135M"].plain / body.plain if body in H100.values() else math.inf
        return (own if self.cost is None else self.cost) or None

    @property
    def share(self) -> float:
        """With which a draft in which each token is right alike keeps as many."""
        found = np.roots([*[1.0] * len(self.kept), -sum(self.kept)])
        return min(1.0, float(max(root.real for root in found if abs(root.imag) < 1e-9)))


def speedups(drafter: Simulated, body: Recorded) -> Iterator[float]:
    """Over plain decoding, of seed after seed; the first replies, in which it learns, count."""
    cost = drafter.cost_beside(body)
    if cost == math.inf:
        return
    for seed in range(_SEEDS):
        machine = Machine(
            constant(drafter.share, seed),
            body.passes,
            draw_cost=cost,
            catches_up=cost is not None,
            prior=TRAINED_PRIOR,
            seed=seed,
            changes=body.changes or None,
        )
        log = Log()
        for _ in range(_REPLIES):
            machine.run(tokens=_REPLY, log=log)
        yield log.speedup()


def main(words: Sequence[str] | None = None) -> None:
    """Simulate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drafter", type=Simulated.of, nargs="+")
    print(f"| drafter | each token | {' | '.join(BODIES)} |")
    print("| --- " * (2 + len(BODIES)) + "|")
    for drafter in parser.parse_args(words).drafter:
        found = [list(speedups(drafter, body)) for body in BODIES.values()]
        cells = [f"{np.mean(one):.2f} ({min(one):.2f})" if one else "" for one in found]
        print(f"| {drafter.name} | {drafter.share:.2f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
