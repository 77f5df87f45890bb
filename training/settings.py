"""How a drafter is trained."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """What a run is determined by, beside its samples.

    method: eagle3, eagle1 (reads the last state alone, as arXiv 2401.15077), hydra, medusa, or
    recurrent (one Hydra step for all positions, as ReDrafter). steps: of the optimiser, each on
    about batch_tokens tokens: many small ones, as 123,000 tokens taught 0.36 of three drafted
    tokens in steps of 512, 0.30 in steps of 1,024, 0.16 in steps of 2,048. vocabulary: commonest
    tokens drafted; 8,192 have 0.97 of a 135M's greedy answers, 4,096 0.93. depth: drafted tokens
    trained one from another, with decay as the weight of each further one. noise: of the states, in
    units of their spread. rank: of a trained output, 0 for the target's own rows, frozen.
    is_parallel: all are drafted in one pass (P-EAGLE). acceptance: share of the loss that is of
    what sampling would reject, from half of the steps on; the rest is cross-entropy.
    """

    method: str
    steps: int
    vocabulary: int = 8192
    rate: float = 1e-3
    batch_tokens: int = 512
    seed: int = 0
    depth: int = 3
    decay: float = 0.8
    noise: float = 0.05
    rank: int = 0
    is_parallel: bool = False
    acceptance: float = 0.0

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the losses of drafted tokens, by position; some learn the first alone."""
        trained = 1 if self.method in ("eagle1", "distil") else self.depth
        return tuple(self.decay**position for position in range(trained))
