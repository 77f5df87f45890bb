"""Log probabilities that are told of one token of a reply; read without loading numpy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of a reply, its log probability, and the likeliest tokens in its place with theirs.

    They are the model's own: of its logits as they are, without temperature, penalties, bias,
    truncation and grammar. top: the likeliest first; of equals the lower id.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
