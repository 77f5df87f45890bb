"""What the trainer asks of a net."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Weights
from training.samples import Sample


class Net(Protocol):
    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        """What is trained, as it begins, the same each time."""
        ...

    def prepared(self, samples: Sequence[Sample], random: np.random.Generator | None) -> Any:
        """A batch of arrays; random: draws the noise of a training batch, None for no noise."""
        ...

    def loss(self, weights: Weights, prepared: Any, progress: float) -> Array:
        """A number; progress: share of the steps that are done."""
        ...

    def accepted(self, weights: Weights, prepared: Any) -> tuple[float, int]:
        """Roll drafts out from every place of the answers, on their own tokens and states.

        Returns the tokens in all that the answers have up to the first other one, and the number
        of drafts.
        """
        ...
