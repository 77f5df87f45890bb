"""A drafter in words: what it is, its expected gain, and what became of its drafts."""

import math
from collections.abc import Iterator

from app.drafting.choose.drafter_info import DrafterInfo, Kind
from app.drafting.drafter_spec import JACOBI, LOOKAHEAD, LOOKUP, NGRAM, RETRIEVAL
from decoding.estimation.cost import BUSY
from models.byte_sizes import short_size, size_text
from models.metadata.memory_bill import Fit

_SURE = 0.05
"""Predicted gain or loss from which one is expected."""


def doubt(spread: float) -> str:
    """A warning that costs may be wrong by a share."""
    return f"{BUSY}: may be off by {_percent(spread)} or more"


def facts_in_words(drafter: DrafterInfo) -> Iterator[str]:
    """Facts on a drafter, the most important first."""
    if drafter.kind and drafter.kind != drafter.name:
        yield drafter.kind
    if drafter.is_compatible is False:
        yield f"cannot draft: {drafter.why}"
        return
    gain = _gain(drafter)
    if gain:
        yield gain
    if drafter.doubt and drafter.speedup is None:
        yield drafter.doubt
    if drafter.kind is Kind.COMPOSED:
        yield "whether it pays is measured while it drafts"
    if drafter.memory_bytes:
        yield size_text(drafter.memory_bytes) + (f", {_FITS[drafter.fit]}" if drafter.fit else "")
    if not drafter.is_installed and drafter.kind not in _OWN:
        yield "not on this machine"
    yield drafter.why


_FITS = {
    Fit.FITS: "fits beside the model",
    Fit.TIGHT: "is tight beside the model",
    Fit.TOO_BIG: "does not fit beside the model",
}


def _gain(drafter: DrafterInfo) -> str:
    """The expected gain, or the acceptance that it needs."""
    least = drafter.break_even
    parts: list[str] = []
    if drafter.speedup is not None:
        parts.append(_expected(drafter.speedup))
    if drafter.acceptance is not None:
        share = _percent(drafter.acceptance)
        source = "expected from a trial" if drafter.is_trial else "so far"
        parts.append(f"acceptance {share} {source}")
    if least == math.inf:
        parts.append("no gain here, even at 100 % acceptance")
    elif least is not None and drafter.needs_no_model:
        parts.append(f"drafts at no cost, break-even acceptance: {_percent(least)}")
    elif least is not None:
        parts.append(f"break-even acceptance: {_percent(least)}")
    if drafter.start_cost and drafter.cost_source:
        parts.append(f"a block costs {drafter.block_cost:.2f} of a step ({drafter.cost_source})")
    elif drafter.draw_cost and drafter.cost_source:
        parts.append(f"a token costs {drafter.draw_cost:.2f} of a step ({drafter.cost_source})")
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


_OWN = (Kind.SELF, Kind.COMPOSED)
"""Kinds that are made of what is here."""

ENOUGH_JUDGED = 32
"""Drafted tokens from which their accepted share is shown."""

NOT_TRIED = "not tried"
TOO_SLOW = "too slow here"
LIKELY_TOO_SLOW = "likely too slow here"
NOT_ENOUGH = "not enough data"
MEASURING = "measuring…"

_NATURES = {
    LOOKUP: "copies from this chat",
    NGRAM: "this model's common phrases",
    RETRIEVAL: "copies from your other chats",
    LOOKAHEAD: "phrases guessed on the side",
    JACOBI: "guesses that each pass mends",
    "cascade": "lookup drafts for self",
    "vote": "lookup and self vote",
    "tree": "self, several ways on",
    "paths": "self, several lines",
}

_HEADS = {
    "mtp": "layers that predict ahead",
    "assistant": "an assistant of this model",
    "eagle3": "a head for this model",
    "dflash": "a head that drafts blocks",
    "dspark": "a head that drafts blocks",
    "hydra": "a small head for this model",
}

_EXPLANATIONS = {
    "auto": "auto uses the free drafters, and another one if it was measured to pay off.",
    "off": "off answers with the model alone.",
    LOOKUP: "lookup copies from what was said in this chat. Good for edits and code.",
    NGRAM: "ngram continues with phrases that this model often uses.",
    RETRIEVAL: "retrieval copies from what was said in your other chats.",
    LOOKAHEAD: "lookahead drafts phrases that the model guesses beside its own work.",
    JACOBI: "jacobi has the model guess further tokens, and mend them at each pass.",
    "cascade": "{name}: lookup drafts for self, which drafts for the model.",
    "vote": "{name}: what lookup and self agree on is drafted.",
    "tree": "{name}: self drafts several ways on, and the model checks them together.",
    "paths": "{name}: self drafts several lines, and the model checks one of them.",
}

_SHORT = {
    "auto": "auto: what pays off",
    "off": "off: the model alone",
    LOOKUP: "lookup: copies from this chat, free",
    NGRAM: "ngram: common phrases, free",
    RETRIEVAL: "retrieval: from other chats, free",
}


def _family(name: str) -> str:
    return name.partition("(")[0]


def _of_head(drafter: DrafterInfo) -> str:
    if not drafter.is_installed:
        return "to download"
    return _HEADS.get(drafter.name.partition(":")[0], "a head for this model")


def nature(drafter: DrafterInfo) -> str:
    """What a drafter is, in up to 31 characters."""
    if (known := _NATURES.get(_family(drafter.name))) is not None:
        return known
    if drafter.kind is Kind.SELF:
        return _of_self(drafter)
    if drafter.kind is Kind.TRAINED:
        return _of_head(drafter)
    if drafter.is_installed and drafter.kind is Kind.ACROSS_VOCABULARIES:
        return "different vocabulary"
    size = _size(drafter)
    if not drafter.is_installed:
        return f"{size} to download" if size else "to download"
    return f"a smaller model, {size}" if size else "a smaller model"


def _of_self(drafter: DrafterInfo) -> str:
    recipe = drafter.recipe
    cuts_layers = recipe is not None and "skip" in recipe.text and not recipe.text.startswith("q")
    return "this model, fewer layers" if cuts_layers else "this model, lower precision"


def short_verdict(drafter: DrafterInfo, *, is_measuring: bool) -> str:
    """What can be said of a drafter where there is little room; empty if its share is shown."""
    words = verdict(drafter, is_measuring=is_measuring)
    if not words.startswith(NOT_TRIED):
        return words
    size = _size(drafter)
    return f"{size}, {NOT_TRIED}" if size and not drafter.is_installed else NOT_TRIED


def verdict(drafter: DrafterInfo, *, is_measuring: bool) -> str:
    """What can be said of a drafter; empty if its accepted share is shown.

    is_measuring: whether what is unknown is being measured.
    """
    if drafter.fit is Fit.TOO_BIG:
        return "too big beside the model"
    if is_measuring and (drafter.is_compatible is None or _is_unmeasured(drafter)):
        return MEASURING
    if drafter.break_even == math.inf or (drafter.speedup is not None and drafter.speedup < 1.0):
        return TOO_SLOW if drafter.is_installed or drafter.kind in _OWN else LIKELY_TOO_SLOW
    if shows_share(drafter):
        return ""
    return NOT_ENOUGH if drafter.is_free else f"{NOT_TRIED}: F5 races it"


def shows_share(drafter: DrafterInfo) -> bool:
    """Whether enough drafts were judged to show the share that was accepted."""
    return (
        drafter.acceptance is not None and not drafter.is_trial and drafter.judged >= ENOUGH_JUDGED
    )


def _is_unmeasured(drafter: DrafterInfo) -> bool:
    return drafter.draw_cost is None and drafter.is_installed and drafter.kind is not Kind.COMPOSED


def _size(drafter: DrafterInfo) -> str:
    count = drafter.facts.weight_bytes if drafter.facts else drafter.read_bytes
    return short_size(count) if count else ""


def explanation(name: str, drafter: DrafterInfo | None, *, is_narrow: bool = False) -> str:
    """A sentence on a drafter."""
    if is_narrow and name in _SHORT:
        return _SHORT[name]
    if (known := _EXPLANATIONS.get(_family(name))) is not None:
        return known.replace("{name}", name)
    if drafter is None:
        return f"{name} was asked for by name."
    if drafter.kind in (Kind.SELF, Kind.TRAINED):
        return f"{name}: {drafter.why}."
    memory = (
        f" It needs {short_size(drafter.memory_bytes)} of memory." if drafter.memory_bytes else ""
    )
    return f"{name} is a smaller model that guesses ahead.{memory}"


def break_even_words(share: float | None, *, is_rough: bool, is_narrow: bool = False) -> str:
    """From which accepted share drafting pays off here; empty if it is not known.

    is_rough: whether it was measured on a busy machine.
    """
    if share is None:
        return ""
    if share == math.inf:
        return "Drafting cannot pay off here: checking a draft takes as long as writing it."
    percent = f"{'about ' if is_rough else ''}{max(1, math.ceil(100 * share))} %"
    if is_narrow:
        return f"Pays off from {percent} accepted."
    return f"Drafting pays off here when at least {percent} of a draft is accepted."
