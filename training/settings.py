"""How a drafter is trained."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """What a run is determined by, beside its samples.

    method: eagle3, hydra, medusa, distil or mtp. steps: of the optimiser, each on about
    batch_tokens tokens: many small ones, as 123,000 tokens taught 0.36 of three drafted tokens in
    steps of 512, 0.30 in steps of 1,024, 0.16 in steps of 2,048. vocabulary: commonest tokens
    drafted; 8,192 have 0.97 of a 135M's greedy answers, 4,096 0.93. depth: drafted tokens trained
    one from another, with decay as the weight of each further one. noise: of the states, in units
    of their spread. rank: of the changes to a model that is distilled, 0 for whole matrices.
    acceptance: share of the loss that is of what sampling would reject, from half of the steps on;
    the rest is cross-entropy.
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
    acceptance: float = 0.0
