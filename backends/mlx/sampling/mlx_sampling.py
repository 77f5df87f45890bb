"""Drafting and verification in one context on its device, with one synchronisation each."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.base import DeviceRow, Drawn, Listener, ModelError, Warping
from backends.mlx.sampling.device_verification import judge
from backends.mlx.sampling.device_warping import draw, warp
from backends.mlx.sampling.fixed_point import PROBABILITY_BITS, fraction


class SampledContext(Protocol):
    """Passes of a context whose logits stay on the device."""

    def growing(self, count: int) -> AbstractContextManager[None]:
        """Guard passes over count more tokens; if one fails, the context is empty.

        Raises:
            ModelError: the tokens do not fit, or the engine failed.
        """
        ...

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array:
        """Lazy logits of the last n_logits of tokens, shape (n_logits, n_vocab)."""
        ...

    def logits_of(self, token: int) -> mx.array:
        """Lazy logits of a pass over one token, prepared already if it was foreseen."""
        ...

    def foresee(self, token: mx.array) -> None:
        """Prepare the pass over a token, shape (1,), that is still being computed."""
        ...

    @property
    def unread(self) -> Sequence[mx.array]:
        """Lazy rows that passes leave for heads, to be computed along with them."""
        ...

    def passed(self, tokens: Sequence[int]) -> None:
        """Count in tokens whose passes are computed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MlxRow:
    """A q_draft: fixed-point probabilities, shape (n_vocab,)."""

    array: mx.array

    def probabilities(self) -> NDArray[np.float64]:
        weights = np.array(self.array).astype(np.float64)
        return weights / weights.sum()


class MlxSampling:
    """DeviceSampling of one MLX context."""

    def __init__(self, context: SampledContext) -> None:
        self._context = context

    def draft(
        self,
        tokens: Sequence[int],
        warping: Warping,
        uniforms: NDArray[np.float64],
        n_vocab: int,
    ) -> Drawn:
        """Draw tokens; each enters the next pass as an array, so that nothing waits for its id."""
        context, numbers = self._context, fraction(uniforms)
        drawn: list[mx.array] = []
        rows: list[mx.array] = []
        sound: list[mx.array] = []
        with context.growing(len(tokens) + len(uniforms) - 1):
            pending = mx.array(list(tokens))
            for place in range(len(uniforms)):
                logits = context.logits(pending, 1)[:, :n_vocab]
                distribution = warp(logits, warping)
                pending = draw(distribution.ids, distribution.weights, numbers[place : place + 1])
                drawn.append(pending)
                rows.append(distribution.dense(logits.shape[-1]))
                sound.append(distribution.sound)
                mx.async_eval(pending, rows[-1], distribution.sound)
            together = mx.concatenate(drawn)
            of_drawn = mx.take_along_axis(mx.concatenate(rows), together[:, None], axis=-1)[:, 0]
            usable = mx.all(mx.concatenate(sound))
            mx.eval(together, of_drawn, usable, *context.unread)
        ids = cast("list[int]", together.tolist())
        context.passed([*tokens, *ids[:-1]])
        _check(usable)
        probabilities = np.ldexp(np.array(of_drawn), -PROBABILITY_BITS).tolist()
        return Drawn(tuple(ids), tuple(probabilities), tuple(MlxRow(row[0]) for row in rows))

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
            wanted = accepted, next_token, usable, *likeliest, *context.unread
            mx.async_eval(*wanted)
            if not drafted:
                context.foresee(next_token[None])
            mx.eval(*wanted)
        context.passed(together)
        _check(usable)
        if listener is not None:
            listener(np.array(likeliest[0]).astype(np.int64))
        return cast("int", accepted.item()), cast("int", next_token.item())


def _stacked(rows: Sequence[DeviceRow], n_vocab: int) -> mx.array:
    """Drafter rows padded or cut to the target's vocabulary; a drafter never draws other tokens."""
    arrays = mx.stack([cast("MlxRow", row).array for row in rows])
    missing = n_vocab - arrays.shape[-1]
    return mx.pad(arrays, [(0, 0), (0, missing)]) if missing > 0 else arrays[:, :n_vocab]


def _check(usable: mx.array) -> None:
    if not usable.item():
        raise ModelError(
            "the model gave no usable scores", "not a number among them", "Its file may be damaged."
        )
