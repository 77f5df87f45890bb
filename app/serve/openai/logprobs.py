"""Log probabilities of tokens in the forms of OpenAI's chat and completions."""

from collections.abc import Iterable, Sequence

from app.serve.reply_events import TokenLogprob

Fields = dict[str, object]


def logprobs_of(tokens: Iterable[TokenLogprob]) -> Fields:
    """Those of the tokens of a choice, or of a chunk of it."""
    return {"content": [_entry(token) for token in tokens], "refusal": None}


def completion_logprobs_of(tokens: Sequence[TokenLogprob]) -> Fields:
    """The same in the form of completions."""
    return {
        "tokens": [_text(token.data) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_by_text(token) for token in tokens],
        "text_offset": [token.begin for token in tokens],
    }


def _by_text(token: TokenLogprob) -> Fields:
    """Each alternative by its text; further ones of a text by their ids, as vLLM writes them."""
    found: Fields = {}
    for other in token.top:
        text = _text(other.data)
        found[f"token_id:{other.token}" if text in found else text] = other.logprob
    return found


def _entry(token: TokenLogprob) -> Fields:
    top = [_figures(other.data, other.logprob) for other in token.top]
    return {**_figures(token.data, token.logprob), "top_logprobs": top}


def _figures(data: bytes, logprob: float) -> Fields:
    return {"token": _text(data), "logprob": logprob, "bytes": list(data)}


def _text(data: bytes) -> str:
    """The text of a token; of a part of a character its bytes, as OpenAI writes them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
