"""Replies side by side: each as if it were alone, all together as fast as the machine allows."""

from collections.abc import Sequence

from decoding.batching import Batch
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.clock import Clock
from tests.fixtures.published import PUBLISHED, Known
from tests.fixtures.simulated_cells import SimulatedSequence
from tests.fixtures.simulated_text import N_VOCAB, Text, constant
from tests.fixtures.simulator import CURVES, H100, PLAIN_SECONDS, Curve, FreeDrafter, costs_of

GREEDY = SamplingSettings(temperature=0.0)
TOKENS = 1000
PROMPT = 5


class Fixed(FreeDrafter):
    """Drafts so many tokens at every step."""

    def __init__(self, text: Text, length: int) -> None:
        super().__init__(text)
        self._length = length

    def propose(self, history, limit, keep_on=None):  # type: ignore[no-untyped-def]
        return super().propose(history, min(limit, self._length))


class Together:
    """Replies of one machine, each over a text of its own, with or without a controller."""

    def __init__(self, shares: Sequence[float], known: Curve, *, fixed: int | None = None) -> None:
        self.clock = Clock(0.0)
        self.began = 0.0
        self.texts = [
            Text(constant(share, seed, 3 * TOKENS), seed) for seed, share in enumerate(shares)
        ]
        self.costs = costs_of(known)
        first = SimulatedSequence(self.texts[0], known, self.clock)
        self.sequences = [first, *(first.beside(text) for text in self.texts[1:])]
        self.batch = Batch(first, lambda: self.costs, self.clock)
        self.steps: list[list[Step]] = [[] for _ in shares]
        self._fixed = fixed
        self.controller = Controller([], self.costs, N_VOCAB, self.clock)

    def begin(self, place: int) -> None:
        text, sequence = self.texts[place], self.sequences[place]
        if self._fixed is None:
            members = [ManagedDrafter(FreeDrafter(text))]
            drafter = self.controller.of(members, is_beside=True)
        else:
            drafter = Fixed(text, self._fixed) if self._fixed else None

        def work() -> None:
            limits = Limits(TOKENS, frozenset())
            prompt = text.tokens[:PROMPT]
            events = generate(
                sequence, prompt, GREEDY, limits, drafters=lambda: drafter, clock=self.clock
            )
            for event in events:
                if isinstance(event, Step):
                    self.steps[place].append(event)

        self.batch.begin(sequence, work)

    def run(self) -> float:
        """Tokens in the time of a plain step of one reply alone."""
        for place in range(len(self.texts)):
            self.begin(place)
        while len(self.batch) == len(self.texts):  # later, fewer share the passes
            self.batch.step()
        return sum(map(len, map(self.said, range(len(self.texts))))) / (
            self.clock.now / PLAIN_SECONDS
        )

    def said(self, place: int) -> list[int]:
        return [token for step in self.steps[place] for token in step.tokens]


def _extended(known: Curve) -> Curve:
    """A curve up to 64 tokens, in a straight line from its last part on."""
    last = len(known) - 1
    slope = (known[last] - known[max(last // 2, 1)]) / max(last - max(last // 2, 1), 1)
    return [*known, *(known[last] + slope * count for count in range(1, 65 - last))]


MACHINES: dict[str, Curve] = {
    name: _extended(known)
    for name, known in (
        *CURVES.items(),
        *((f"H100 {name}", known.passes) for name, known in H100.items()),
        *((one.name, one.passes) for one in PUBLISHED if one.known is Known.CURVE),
    )
}
