"""Log probabilities of tokens in the form of OpenAI's chat."""

from collections.abc import Iterable

from app.serve.reply_events import Alternative, TokenLogprob

Fields = dict[str, object]


def logprobs_of(tokens: Iterable[TokenLogprob]) -> Fields:
    """Those of the tokens of a choice, or of a chunk of it."""
    return {"content": [_entry(token) for token in tokens], "refusal": None}


def _entry(token: TokenLogprob) -> Fields:
    top = [_figures(alternative) for alternative in token.top]
    return {**_figures(Alternative(token.data, token.logprob)), "top_logprobs": top}


def _figures(token: Alternative) -> Fields:
    return {
        "token": token.data.decode(errors="replace"),
        "logprob": token.logprob,
        "bytes": list(token.data),
    }
