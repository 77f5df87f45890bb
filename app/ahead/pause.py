"""How long a text that is typed must pause to be read on as if it were sent."""

_SENTENCE_ENDS = frozenset(".?!…。？！")  # noqa: RUF001 - as other scripts write them
_CLOSING = "\"')]}»”’」"  # noqa: RUF001

AFTER_SENTENCE_SECONDS = 0.05
"""After the end of a sentence, which Enter often follows, as soon as another key would. What is
read in vain where another sentence follows is a few tokens a sentence. A guess; not measured."""

ELSEWHERE_SECONDS = 0.6
"""Longer than between most keys, and than the pauses between most words. A guess; not measured."""


def ends_sentence(text: str) -> bool:
    """Whether a text ends with a sentence."""
    return text.rstrip().rstrip(_CLOSING)[-1:] in _SENTENCE_ENDS


def pause_before(text: str) -> float:
    """Seconds without a key after which a text is read on."""
    return AFTER_SENTENCE_SECONDS if ends_sentence(text) else ELSEWHERE_SECONDS
