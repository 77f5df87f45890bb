"""Where an option may come from: the command line, a variable, the settings file, in that order."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.app.conftest import AskJson, Specchat, Write

OnTerminal = Callable[..., Any]

SHORT = ("hi", "--max-tokens", "2")


VARIABLES = {
    "TEMPERATURE": ("0.25", "temperature", 0.25),
    "TOP_K": ("5", "top_k", 5),
    "TOP_P": ("0.5", "top_p", 0.5),
    "MIN_P": ("0.2", "min_p", 0.2),
    "REPEAT_PENALTY": ("1.1", "repeat_penalty", 1.1),
    "SEED": ("11", "seed", 11),
    "MAX_TOKENS": ("3", "max_tokens", 3),
}


@pytest.mark.usefixtures("llamacpp")
def test_every_option_of_an_answer_has_a_variable(
    ask_json: AskJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (value, _, _) in VARIABLES.items():
        monkeypatch.setenv(f"SPECCHAT_{name}", value)
    for name, value in {"MODEL": "demo", "DRAFT": "off", "CTX": "100", "THREADS": "1"}.items():
        monkeypatch.setenv(f"SPECCHAT_{name}", value)
    report = ask_json("hi")
    assert report["sampling"] == {key: value for _, key, value in VARIABLES.values()}
    assert report["draft"]["requested"] == "off"
    assert report["model"]["context"] == 100


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_an_empty_variable_counts_as_absent(
    ask_json: AskJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_TEMPERATURE", "")
    assert ask_json(*SHORT)["sampling"]["temperature"] == 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_the_command_line_beats_a_variable_and_that_the_settings_file(
    ask_json: AskJson, monkeypatch: pytest.MonkeyPatch, write_settings: Write
) -> None:
    write_settings('temperature = 0.1\ntop_k = 1\nseed = 1\ndraft = "off"\nmax_tokens = 2\n')
    monkeypatch.setenv("SPECCHAT_TEMPERATURE", "0.2")
    monkeypatch.setenv("SPECCHAT_TOP_K", "2")
    report = ask_json("hi", "--temperature", "0.3")
    assert report["sampling"]["temperature"] == 0.3
    assert report["sampling"]["top_k"] == 2
    assert report["sampling"]["seed"] == 1
    assert report["sampling"]["max_tokens"] == 2
    assert report["draft"]["requested"] == "off"


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_options_before_the_command_count_and_one_after_it_beats_them(
    specchat: Specchat, write_settings: Write
) -> None:
    write_settings('draft = "self"\n')
    ended = specchat("--model", "demo", "--draft", "off", "--ctx", "90", "ask", *SHORT, "--json")
    assert '"requested": "off"' in ended.stdout
    assert '"context": 90' in ended.stdout
    ended = specchat("--draft", "self", "ask", *SHORT, "--draft", "off", "--json")
    assert '"requested": "off"' in ended.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("zzz = 1\n", ["'zzz'", "max_tokens"]),
        ("temperature =\n", ["line 1"]),
        ('temperature = "hot"\n', ["temperature"]),
        ("ctx = [1]\n", ["ctx"]),
    ],
)
def test_a_wrong_settings_file_is_named(
    specchat: Specchat, write_settings: Write, text: str, told: list[str]
) -> None:
    path = write_settings(text)
    ended = specchat("ask", "hi")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert all(part in ended.stderr for part in [str(path), *told]), ended.stderr


def test_a_broken_settings_file_does_not_hide_where_it_is(
    specchat: Specchat, write_settings: Write
) -> None:
    write_settings("zzz = 1\n")
    assert specchat("--help").returncode == 0
    assert specchat("path", "config").returncode == 0
