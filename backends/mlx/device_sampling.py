"""Drafting and verification of one context on its device, with one synchronisation each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.base import DeviceRow, Drawn, Listener, ModelError, Warping
from backends.mlx.fixed_point import PROBABILITY_BITS, fraction
from backends.mlx.verification import judge
from backends.mlx.warping import draw, warp

if TYPE_CHECKING:
    from backends.mlx.context import MlxContext


@dataclass(frozen=True, slots=True, eq=False)
class MlxRow:
    """A q_draft: probabilities of fixed_point, shape (n_vocab,)."""

    array: mx.array

    def probabilities(self) -> NDArray[np.float64]:
        found = np.array(self.array).astype(np.float64)
        return found / found.sum()


class MlxSampling:
    """See backends.base.DeviceSampling."""

    def __init__(self, context: "MlxContext") -> None:
        self._context = context

    def draft(
        self,
        tokens: Sequence[int],
        warping: Warping,
        uniforms: NDArray[np.float64],
        n_vocab: int,
    ) -> Drawn:
        """Each drawn token goes into the next pass as an array: nothing waits for its number."""
        context, numbers = self._context, fraction(uniforms)
        drawn: list[mx.array] = []
        rows: list[mx.array] = []
        sound: list[mx.array] = []
        with context.growing(len(tokens) + len(uniforms) - 1):
            pending = mx.array(list(tokens))
            for place in range(len(uniforms)):
                logits = context.logits(pending, 1)[:, :n_vocab]
                law = warp(logits, warping)
                pending = draw(law.ids, law.weights, numbers[place : place + 1])
                drawn.append(pending)
                rows.append(law.dense(logits.shape[-1]))
                sound.append(law.sound)
                mx.async_eval(pending, rows[-1], law.sound)
            together = mx.concatenate(drawn)
            of_drawn = mx.take_along_axis(mx.concatenate(rows), together[:, None], axis=-1)[:, 0]
            usable = mx.all(mx.concatenate(sound))
            mx.eval(together, of_drawn, usable)
        found = cast(list[int], together.tolist())
        context.tokens.extend([*tokens, *found[:-1]])
        _check(usable)
        probabilities = np.ldexp(np.array(of_drawn), -PROBABILITY_BITS).tolist()
        return Drawn(tuple(found), tuple(probabilities), tuple(MlxRow(row[0]) for row in rows))

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: NDArray[np.float64],
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        context, together = self._context, [*tokens, *drafted]
        with context.growing(len(together)):
            if len(together) == 1:
                logits = context.logits_of(together[0])
            else:
                logits = context.logits(mx.array(together), 1 + len(drafted))
            q_draft = _stacked(rows, logits.shape[-1]) if rows else None
            chosen = mx.array(list(drafted), dtype=mx.int32)
            accepted, next_token, usable = judge(warp(logits, warping), chosen, q_draft, uniforms)
            likeliest = [mx.argmax(logits[-1 - len(drafted) :], axis=-1)] if listener else []
            mx.async_eval(accepted, next_token, usable, *likeliest)
            if not drafted:
                context.foresee(next_token[None])
            mx.eval(accepted, next_token, usable, *likeliest)
        context.tokens.extend(together)
        _check(usable)
        if listener is not None:
            listener(np.array(likeliest[0]).astype(np.int64))
        return cast(int, accepted.item()), cast(int, next_token.item())


def _stacked(rows: Sequence[DeviceRow], n_vocab: int) -> mx.array:
    """Rows of a drafter, as long as the target's; what a drafter does not know it never draws."""
    arrays = mx.stack([cast(MlxRow, row).array for row in rows])
    missing = n_vocab - arrays.shape[-1]
    return mx.pad(arrays, [(0, 0), (0, missing)]) if missing > 0 else arrays[:, :n_vocab]


def _check(usable: mx.array) -> None:
    if not usable.item():
        raise ModelError(
            "the model gave no usable scores", "not a number among them", "Its file may be damaged."
        )
