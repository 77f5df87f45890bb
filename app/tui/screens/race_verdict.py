"""What a race says: how much faster the drafted answer was, and whether the two are equal."""

from dataclasses import dataclass

from app.engine.asking.answer import Answer
from app.engine.speed.comparison import PLAIN, Comparison, Standing, compare_replies
from app.learned.plain_replies import PlainReplies
from app.paths import Paths
from app.printable import one_line


@dataclass(frozen=True, slots=True)
class Verdict:
    """speed: the drafted answer's against the plain one's; texts: how the two answers compare."""

    speed: str
    texts: str


def verdict(plain: Answer, drafted: Answer, paths: Paths) -> Verdict:
    """Compare the two answers of a race that has ended."""
    fault = plain.error or drafted.error
    if fault or plain.is_stopped or drafted.is_stopped:
        why = one_line(fault.summary) if fault else "an answer was stopped"
        return Verdict("", f"✕ no verdict: {why}")
    compared = comparison(plain, drafted, paths)
    return Verdict(_speed_words(compared), _text_words(plain, drafted))


def comparison(plain: Answer, drafted: Answer, paths: Paths) -> Comparison:
    """The speed of one answer against the other, both measured on decoding alone.

    Only the time from the first token to the last one counts. The second answer finds the prompt in
    the cache, where the first one had to read it, so time to the first token would favour it.

    The error is that of two whole replies, each of which varies as plain replies do here.
    """
    metrics = drafted.metrics
    if plain.metrics is None or metrics is None:
        return Comparison(Standing.SHORT)
    rates = plain.metrics.decode_tokens_per_second, metrics.decode_tokens_per_second
    if not rates[0] or not rates[1]:
        return Comparison(Standing.SHORT)
    if not metrics.drafted:
        return PLAIN
    spread = PlainReplies.of(metrics.model, paths).spread
    tokens = min(len(plain.token_ids), len(drafted.token_ids))
    return compare_replies(rates[1], rates[0], tokens, spread)


def first_difference(plain: str, drafted: str) -> int | None:
    """Where two texts begin to differ: at the start of a word; None if they are equal."""
    if plain == drafted:
        return None
    shorter = min(len(plain), len(drafted))
    pairs = zip(plain, drafted, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)
    while same and not plain[same - 1].isspace():
        same -= 1
    return same


def _speed_words(compared: Comparison) -> str:
    if compared.standing is Standing.PLAIN:
        return "nothing was drafted, so both are plain"
    return compared.panel_words


def _text_words(plain: Answer, drafted: Answer) -> str:
    if drafted.metrics is not None and drafted.metrics.lossy:
        return drafted.metrics.lossy
    place = first_difference(plain.text, drafted.text)
    if place is None:
        return f"word for word the same, {len(plain.token_ids):,} tokens"
    if plain.request.settings.temperature > 0.0:
        return "same distribution, other samples"
    words = len(plain.text[:place].split())
    return f"same up to word {words:,}, then a tie; `specchat verify` checks"
