"""Which drafters exist for one reply, by its options."""

from collections.abc import Iterator

from app.chat.reply_options import ReplyOptions
from backends.base.tokenizer import Tokenizer
from backends.chat.chat_template import Prompt
from decoding.draft import Drafter
from decoding.drafters.forced.forced_tokens import ForcedTokens
from decoding.drafters.lookup.predicted_text import PredictedText

_CHARACTERS_PER_TOKEN = 8
"""A context's worth of text, beyond which a predicted text is cut: tokens of text and code have 2
to 5 characters."""


def drafters_of(
    options: ReplyOptions, tokenizer: Tokenizer, prompt: Prompt, n_ctx: int
) -> Iterator[Drafter]:
    """The drafters of one reply alone. Those that come first are preferred where drafts are equal.

    n_ctx: size of the context.
    """
    if options.grammar is not None:
        yield ForcedTokens()
    if predicted := _tokens(options.prediction, tokenizer, n_ctx):
        yield PredictedText(predicted, len(prompt.tokens) - prompt.begun)


def _tokens(text: str, tokenizer: Tokenizer, n_ctx: int) -> list[int]:
    """Tokens of a predicted text; what cannot be encoded is replaced, and never matches."""
    if not text:
        return []
    usable = text[: n_ctx * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode("utf-8")
    return tokenizer.encode(usable, special=False)[:n_ctx]
