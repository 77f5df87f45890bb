"""`--lossy` on every command that answers: warned of once, and told with each answer."""

import json
from pathlib import Path

import pytest

from app.learned.acceptance_memory import AcceptanceMemory
from app.paths import Paths
from app.settings import file
from app.settings.answering import Answering, restored, stored
from backends.base import UsageError
from decoding.estimation.acceptance import is_lossless
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.settings import LossyRule
from tests.app.conftest import AskJson, Specchat

REPEAT = "Repeat this: " + "one two three four five six seven eight nine ten, " * 8
SAMPLED = ("--temperature", "0.2", "--seed", "3", "--max-tokens", "40")
PLAIN = ("--draft", "off", "--max-tokens", "1")
LOOKUP = ("--draft", "lookup")
EARS = ("--lossy", "ears")
WARNING = "answers may be lossy (ears 0.1)"

runs = pytest.mark.usefixtures("llamacpp", "drafting_pays")


@pytest.mark.slow
@runs
def test_a_lossy_answer_says_so_and_is_warned_of_once(specchat: Specchat, demo_file: Path) -> None:
    ended = specchat("ask", REPEAT, *SAMPLED, *LOOKUP, *EARS, "--json")
    assert ended.stderr.count(WARNING) == 1
    report = json.loads(ended.stdout)
    assert report["stats"]["drafted"] > 0
    assert (report["lossless"], report["lossy"]) == (False, "ears:0.1")
    # What the rule accepted says nothing of what the exact one will.
    kinds = AcceptanceMemory(demo_file, Paths.of_this_user()).recall("lookup").counts()
    assert kinds
    assert not any(map(is_lossless, kinds))


@pytest.mark.slow
@runs
def test_at_temperature_0_an_answer_is_lossless_all_the_same(specchat: Specchat) -> None:
    ended = specchat("ask", REPEAT, *SAMPLED, *LOOKUP, *EARS, "--temperature", "0", "--json")
    assert ended.stderr == ""
    report = json.loads(ended.stdout)
    assert report["stats"]["drafted"] > 0
    assert (report["lossless"], report["lossy"]) == (True, "ears:0.1")


@pytest.mark.slow
@runs
def test_a_conversation_is_warned_of_once_and_its_figures_tell_it(specchat: Specchat) -> None:
    lines = f"{REPEAT}\n{REPEAT}\n/stats\n".encode()
    ended = specchat(*EARS, "chat", *SAMPLED, *LOOKUP, stdin=lines)
    assert (ended.returncode, ended.stderr.count(WARNING)) == (0, 1)
    assert " · lossy: ears 0.1" in ended.stderr


@pytest.mark.parametrize("command", [("ask", "hi"), ("chat",), ("verify",)])
def test_another_rule_is_refused(specchat: Specchat, command: tuple[str, ...]) -> None:
    for typed in ((*command, "--lossy", "eers"), ("--lossy", "eers", *command)):
        ended = specchat(*typed)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "eers" in ended.stderr
        assert "there are typical, ears, lenient and off" in ended.stderr


@pytest.mark.slow
@runs
def test_the_settings_file_and_a_variable_have_it_too(
    ask_json: AskJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.save(Paths.of_this_user().settings, {"lossy": "ears:0.2"})
    report = ask_json("hi", *PLAIN)
    assert (report["lossless"], report["lossy"]) == (True, "ears:0.2")
    monkeypatch.setenv("SPECCHAT_LOSSY", "typical")
    assert ask_json("hi", *PLAIN)["lossy"] == "typical:0.09"


def test_a_setting_is_checked(home: Path) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True)
    path.write_text('lossy = "ears:7"\n', encoding="utf-8")
    with pytest.raises(UsageError, match="at least 0, at most 1"):
        file.read(path)


def test_a_chat_has_its_own() -> None:
    usual = Answering(SamplingSettings(lossy=LossyRule("ears", 0.1)), 100)
    assert usual.value("lossy") == "ears:0.1"
    own = {"lossy": "lenient:2"}
    assert restored(stored(own)) == own
    assert usual.changed(own).sampling.lossy == LossyRule("lenient", 2.0)
    without = usual.changed({"lossy": "off"})
    assert (without.sampling.lossy, without.value("lossy")) == (None, "off")
