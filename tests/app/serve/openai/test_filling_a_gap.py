"""Completions with a text after the gap, by a model that has the tokens for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from app.loading.session_options import SessionOptions
from app.serve.server import Server
from tests.fixtures.served_engine import COMPLETIONS, post, serving

PREFIX, SUFFIX, MIDDLE = 1, 2, 3
"""Numbers of the control tokens in the small vocabulary."""


@pytest.fixture
def server(tmp_path: Path, tiny_llama: Callable[..., Path], llamacpp: object) -> Iterator[Server]:
    options = SessionOptions(str(tiny_llama(form="infill")), draft="off", threads=1)
    with serving(tmp_path, None, options) as served:
        yield served


def fill(server: Server, **more: Any) -> Any:
    body = {"prompt": "def half(x):\n    return ", "max_tokens": 4, "logit_bias": {"0": -100}}
    answered = post(server, COMPLETIONS, {**body, **more})
    assert answered.status == 200, answered.text
    return answered.json


def test_the_text_after_the_gap_is_read_before_the_answer(server: Server) -> None:
    active = server.served.engine._active
    assert active is not None
    context = active.session.context
    for suffix in ("\nprint(half(4))", ""):
        usage = fill(server, suffix=suffix)["usage"]
        tokens = list(context.facts.tokens[: usage["prompt_tokens"]])
        piece = active.session.model.tokenizer.piece
        after = tokens[tokens.index(SUFFIX) + 1 : -1]
        assert (tokens[0], tokens[-1]) == (PREFIX, MIDDLE)
        assert b"".join(map(piece, after)).decode() == suffix


def test_without_it_the_prompt_is_plain_text(server: Server) -> None:
    plain, gap = fill(server)["usage"], fill(server, suffix="")["usage"]
    assert gap["prompt_tokens"] == plain["prompt_tokens"] + len((PREFIX, SUFFIX, MIDDLE))
