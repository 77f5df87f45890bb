"""A reply that goes on with the last message, as vLLM's clients ask for it."""

from pathlib import Path

import pytest

from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import CHAT, post, serving

ASKED = {"role": "user", "content": "hi"}
BEGUN = {"role": "assistant", "content": "one "}


def test_the_reply_is_the_rest(tmp_path: Path) -> None:
    with serving(tmp_path, opened(ScriptedModel(["one ", "two ", "three"]))) as server:
        body = {"messages": [ASKED, BEGUN], "continue_final_message": True}
        answer = post(server, CHAT, body).json
    assert answer["choices"][0]["message"]["content"] == "one two three"  # the script, anew
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("messages", [[ASKED], [ASKED, {**BEGUN, "role": "user"}]])
def test_there_must_be_something_to_go_on_with(
    messages: list[dict[str, str]], tmp_path: Path
) -> None:
    with serving(tmp_path, opened(ScriptedModel(["one"]))) as server:
        refused = post(server, CHAT, {"messages": messages, "continue_final_message": True})
    assert refused.status == 400
    assert refused.error["param"] == "continue_final_message"
