"""Describes a drafter's expected gain for a target."""

import math
from collections.abc import Iterator

from app.pairing.candidate import Kind
from app.pairing.ranking import Pair
from decoding.estimation.cost import BUSY
from models.byte_sizes import size_text
from models.metadata.memory_bill import Fit

_SURE = 0.05
"""Predicted gain or loss from which one is expected."""


def doubt(spread: float) -> str:
    """A warning that costs may be wrong by a share."""
    return f"{BUSY}: may be off by {_percent(spread)} or more"


def facts_in_words(pair: Pair) -> Iterator[str]:
    """Facts on a drafter, the most important first."""
    drafter = pair.drafter
    if drafter.kind and drafter.kind != drafter.name:
        yield drafter.kind
    if drafter.is_compatible is False:
        yield f"cannot draft: {drafter.why}"
        return
    gain = _gain(pair)
    if gain:
        yield gain
    if drafter.doubt and pair.speedup is None:
        yield drafter.doubt
    if drafter.kind is Kind.COMPOSED:
        yield "whether it pays is measured while it drafts"
    if pair.memory_bytes:
        yield size_text(pair.memory_bytes) + (f", {_FITS[pair.fit]}" if pair.fit else "")
    if not pair.is_installed and drafter.kind not in (Kind.SELF, Kind.COMPOSED):
        yield "not on this machine"
    yield drafter.why


_FITS = {
    Fit.FITS: "fits beside the model",
    Fit.TIGHT: "is tight beside the model",
    Fit.TOO_BIG: "does not fit beside the model",
}


def _gain(pair: Pair) -> str:
    """The expected gain, or the acceptance that it needs."""
    least = pair.break_even
    parts: list[str] = []
    if pair.speedup is not None:
        parts.append(_expected(pair.speedup))
    if pair.acceptance is not None:
        share = _percent(pair.acceptance)
        source = "expected from a trial" if pair.is_trial else "so far"
        parts.append(f"acceptance {share} {source}")
    if least == math.inf:
        parts.append("no gain here, even at 100 % acceptance")
    elif least is not None and pair.drafter.needs_no_model:
        parts.append(f"drafts at no cost, break-even acceptance: {_percent(least)}")
    elif least is not None:
        parts.append(f"break-even acceptance: {_percent(least)}")
    if pair.start_cost and pair.cost_source:
        parts.append(f"a block costs {pair.block_cost:.2f} of a step ({pair.cost_source})")
    elif pair.draw_cost and pair.cost_source:
        parts.append(f"a token costs {pair.draw_cost:.2f} of a step ({pair.cost_source})")
    return ", ".join(parts)


def _expected(speedup: float) -> str:
    """A predicted speedup, which is right within a few per cent at best."""
    if abs(speedup - 1.0) < _SURE:
        return "about as fast as plain"
    if speedup < 1.0:
        return f"about {_percent(1.0 - speedup)} slower than plain"
    return f"about {speedup:.1f}× plain expected"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
