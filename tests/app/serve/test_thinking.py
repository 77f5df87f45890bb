"""What programs ask of a model's thinking, in three dialects."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("uvicorn")

from app.serve.dialect import Dialect
from app.serve.dialects.anthropic import MESSAGES
from app.serve.dialects.chat import CHAT
from app.serve.dialects.responses import RESPONSES
from app.serve.refusal import RefusedError
from app.settings.answering import Answering
from decoding.sampling.settings import SamplingSettings

SAID = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
DEFAULTS = Answering(SamplingSettings(), 100, think="low", think_budget=7)
MODEL = cast("Any", SimpleNamespace(name="m", n_vocab=9))


def asked(dialect: Dialect, body: dict[str, object]) -> tuple[str, int]:
    reply, _ = dialect.read(json.dumps(body).encode(), DEFAULTS, lambda _: MODEL)
    (request,) = reply.requests
    return request.conversation.think, request.options.think_budget


@pytest.mark.parametrize(
    ("dialect", "body", "wanted"),
    [
        (CHAT, SAID, ("low", 7)),
        (CHAT, SAID | {"reasoning_effort": "none"}, ("off", 7)),
        (CHAT, SAID | {"reasoning_effort": "xhigh"}, ("high", 7)),
        (RESPONSES, {"input": "Hi"}, ("low", 7)),
        (RESPONSES, {"input": "Hi", "reasoning": {"effort": "medium"}}, ("medium", 7)),
        (RESPONSES, {"input": "Hi", "reasoning": {"summary": "auto"}}, ("low", 7)),
        (MESSAGES, SAID, ("low", 7)),
        (MESSAGES, SAID | {"thinking": {"type": "disabled"}}, ("off", 7)),
        (MESSAGES, SAID | {"thinking": {"type": "enabled", "budget_tokens": 5}}, ("on", 5)),
        (
            MESSAGES,
            SAID | {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            ("high", 7),
        ),
    ],
)
def test_each_asks_for_thinking_in_its_own_field(
    dialect: Dialect, body: dict[str, object], wanted: tuple[str, int]
) -> None:
    assert asked(dialect, body) == wanted


@pytest.mark.parametrize(
    ("dialect", "more"),
    [
        (CHAT, {"reasoning_effort": "enormous"}),
        (RESPONSES, {"reasoning": {"effort": 3}}),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 0}}),
    ],
)
def test_what_is_no_effort_is_refused(dialect: Dialect, more: dict[str, object]) -> None:
    with pytest.raises(RefusedError):
        asked(dialect, SAID | more if dialect is not RESPONSES else {"input": "Hi", **more})
