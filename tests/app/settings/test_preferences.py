"""What only the app needs, out of variables and the file; what is set for one chat."""

import subprocess
import sys

import pytest

from app.paths import Paths
from app.settings import file
from app.settings.answering import Answering, restored, stored
from app.settings.in_effect import CAUTIOUS, is_on, preferences_of, settings_in_effect
from app.settings.presets import Presets
from decoding.sampling.distribution import SamplingSettings

WRONG = ("theme", "'future'", "keys.new", "presets.a.b.top_k")


def test_a_variable_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths.of_this_user()
    file.save(paths.settings, {"theme": "nord", "enter_sends": False})
    monkeypatch.setenv("SPECCHAT_THEME", "gruvbox")
    monkeypatch.setenv("SPECCHAT_PANEL", "hidden")
    monkeypatch.setenv("SPECCHAT_ANIMATIONS", "0")
    monkeypatch.setenv("SPECCHAT_AHEAD", "off")
    monkeypatch.setenv("SPECCHAT_AHEAD_WASTE", "2.5")
    found = preferences_of(settings_in_effect(paths), paths.settings)
    assert (found.ahead, found.ahead_waste) == ("off", 2.5)
    assert (found.theme, found.enter_sends, found.panel) == ("gruvbox", False, "hidden")
    assert not found.animations


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCHAT_ENTER_SENDS", "perhaps")
    monkeypatch.setenv("SPECCHAT_THEMME", "nord")
    settings = settings_in_effect(Paths.of_this_user())
    assert "enter_sends" not in settings.values
    wrong, unknown = settings.notices
    why = "it must be true or false"
    assert wrong == f"SPECCHAT_ENTER_SENDS cannot be 'perhaps': {why}. It is ignored."
    assert unknown == "There is no setting for SPECCHAT_THEMME: it is ignored."


def test_what_is_wrong_in_the_file_is_left_out_and_the_rest_applies() -> None:
    paths = Paths.of_this_user()
    write(
        'theme = 3\ntemperature = 0.2\nfuture = 1\n[keys]\nnew = ""\nchats = "f10"\n'
        '[presets."a.b"]\ntop_k = -1\ntop_p = 0.5\n'
    )
    settings = settings_in_effect(paths)
    assert {**settings.values, "threads": 1} == {"temperature": 0.2, "threads": 1}
    assert settings.keys == {"chats": "f10"}
    assert Presets.of(paths).table == {"a.b": {"top_p": 0.5}}
    assert [part in notice for part, notice in zip(WRONG, settings.notices, strict=True)]
    assert all(notice.endswith("It is ignored.") for notice in settings.notices)


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("=", "Defaults apply, offline, and nothing is learned."),
        ("a = 1\n" * 2, "Defaults apply, offline, and nothing is learned."),
        ('learn = "no"\nretrieval = 0\noffline = 7', "It is taken as false."),
    ],
)
def test_nothing_is_learned_while_nobody_can_tell_what_was_set(text: str, notice: str) -> None:
    paths = Paths.of_this_user()
    write(text)
    settings = settings_in_effect(paths)
    assert {name: settings.values[name] for name in CAUTIOUS} == CAUTIOUS
    assert settings.notices[0].endswith(notice)
    assert not is_on("learn", paths)
    assert not is_on("retrieval", paths)


def write(text: str) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


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


def test_an_answer_draws_its_seed_unless_one_is_set() -> None:
    usual = Answering(SamplingSettings(temperature=0.7), 100)
    assert len({usual.for_an_answer().seed for _ in range(8)}) > 1
    assert usual.changed({"seed": 5}).for_an_answer().seed == 5
    assert Answering(SamplingSettings(seed=7), 100, has_seed=True).for_an_answer().seed == 7
