"""What only the app needs, out of variables and the file; what is set for one chat."""

import subprocess
import sys

import pytest

from app.paths import Paths
from app.settings import file
from app.settings.answering import Answering, restored, stored
from app.settings.preferences import read_preferences
from backends.base import UsageError
from decoding.sampling.distribution import SamplingSettings


def test_a_variable_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths.of_this_user()
    file.save(paths.settings, {"theme": "nord", "enter_sends": False})
    monkeypatch.setenv("SPECCHAT_THEME", "gruvbox")
    monkeypatch.setenv("SPECCHAT_PANEL", "hidden")
    monkeypatch.setenv("SPECCHAT_ANIMATIONS", "0")
    found = read_preferences(paths)
    assert (found.theme, found.enter_sends, found.panel) == ("gruvbox", False, "hidden")
    assert not found.animations


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCHAT_ENTER_SENDS", "perhaps")
    with pytest.raises(UsageError, match="SPECCHAT_ENTER_SENDS"):
        read_preferences(Paths.of_this_user())


def test_a_chats_own_values_come_before_the_usual_ones() -> None:
    usual = Answering(SamplingSettings(temperature=0.3, seed=5), 100)
    changed = usual.changed({"top_k": 3, "max_tokens": 7, "preset": "x"})
    assert changed == Answering(SamplingSettings(temperature=0.3, top_k=3, seed=5), 7)


def test_a_chats_own_values_are_kept() -> None:
    own = {"temperature": 0.2, "seed": 3, "max_tokens": 9, "preset": "brief"}
    assert restored(stored(own)) == own


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"temperature": "x"}', '{"top_p": NaN}', '{"gone": 1}', "[" * 9999],
)
def test_what_is_damaged_is_left_out(text: str) -> None:
    assert restored(text) == {}


def test_commands_read_settings_without_the_app_or_the_writer() -> None:
    code = "import sys, app.cli.main; print(sorted({'textual', 'tomlkit'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
