"""--kv from the command line to the engine and into the report."""

import pytest

from tests.app.conftest import AskJson
from tests.fixtures.tiny.kinds import Tiny

pytestmark = pytest.mark.usefixtures("llamacpp")
GREEDY = ("--temperature", "0", "--max-tokens", "24", "--raw")
PROMPT = "abc abc abc abc"


def test_the_type_of_cache_is_used_and_reported(ask_json: AskJson, tiny: Tiny) -> None:
    model = ("--model", str(tiny("llama")))
    usual = ask_json(PROMPT, *model, "--draft", "off", *GREEDY)
    small = ask_json(PROMPT, *model, "--draft", "off", "--kv", "q8_0", *GREEDY)
    assert (usual["model"]["kv"], small["model"]["kv"]) == ("f16", "q8_0")
    ratio = small["stats"]["memory"]["kv_bytes"] / usual["stats"]["memory"]["kv_bytes"]
    assert ratio == pytest.approx(34 / 64)


def test_the_variable_and_the_settings_have_it(
    ask_json: AskJson, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_KV", "q4_0")
    found = ask_json(PROMPT, "--model", str(tiny("llama")), "--draft", "off", *GREEDY)
    assert found["model"]["kv"] == "q4_0"
