"""What every command shares: precedence of options, presets, completion, and the help."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer import core
from typer import main as typer_main

from app import completion
from app.cli import option_values
from app.cli.main import app
from app.paths import Paths
from app.settings.answering import Answering
from tests.app.conftest import Specchat


@pytest.fixture
def parse(home: Path) -> Callable[..., tuple[str, Answering]]:
    """Options for answers of a command line of `specchat chat`."""
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        '[presets.exact]\nsystem = "Be exact."\ntemperature = 0.25\nlossy = "typical"\n'
    )

    def parsed(*arguments: str, before: tuple[str, ...] = ()) -> tuple[str, Answering]:
        group = typer_main.get_command(app)
        assert isinstance(group, core.TyperGroup)
        with group.make_context("specchat", [*before, "chat"]) as outer:
            command = group.get_command(outer, "chat")
            assert command is not None
            with command.make_context("chat", list(arguments), parent=outer) as context:
                return option_values.answer_options(context)  # pyright: ignore[reportArgumentType]

    return parsed


def test_a_preset_is_named_if_there_is_no_model_of_it(specchat: Specchat) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[presets.odd]\nmodel = "nope-model"\n')
    ended = specchat("ask", "--preset", "odd", "hi")
    assert (ended.returncode, "preset odd: no model nope-model" in ended.stderr) == (2, True)
    ended = specchat("ask", "--preset", "odd", "--model", "other-model", "hi")
    assert "preset odd" not in ended.stderr
    assert "no model other-model" in ended.stderr


def test_a_preset_overrides_variables_and_typed_options_override_it(
    parse: Callable[..., tuple[str, Answering]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_TEMPERATURE", "0.5")
    monkeypatch.setenv("SPECCHAT_TOP_K", "7")
    assert parse()[1].sampling.temperature == 0.5
    system, answering = parse("--preset", "exact")
    assert system == "Be exact."
    assert (answering.sampling.temperature, answering.sampling.top_k) == (0.25, 7)
    assert str(answering.sampling.lossy) == "typical:0.09"
    system, answering = parse("--preset", "exact", "--temperature", "1", "--system", "Be brief.")
    assert (answering.sampling.temperature, system) == (1.0, "Be brief.")


def test_a_shipped_preset_is_used_also_before_the_name_of_a_command(
    parse: Callable[..., tuple[str, Answering]],
) -> None:
    system, answering = parse("--preset", "editor")
    assert system.startswith("You are a careful copy editor.")
    assert answering.sampling.temperature == 0.0
    assert parse(before=("--preset", "editor"))[0] == system


def test_a_preset_names_a_model(specchat: Specchat, home: Path) -> None:
    folder = home / "config" / "presets"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "big.toml").write_text('model = "no-such-model"\n')
    (folder / "bad.toml").write_text("temperature = [")
    for name, told in (("big", "no-such-model"), ("bad", "cannot read "), ("bed", "Nearest: bad")):
        ended = specchat("ask", "hi", "--preset", name)
        assert (ended.returncode, told in ended.stderr) == (2, True)


def test_an_unknown_preset_names_the_nearest(specchat: Specchat, home: Path) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[presets.exact]\ntop_k = 1\n")
    ended = specchat("ask", "hi", "--preset", "exat")
    assert (ended.returncode, "Nearest: exact" in ended.stderr) == (2, True)
    assert completion.presets("e") == ["editor", "exact"]


def test_completion_of_values() -> None:
    assert completion.backends("l") == ["llamacpp"]
    assert completion.suites("") == ["quick", "full", "spec-bench", "mt-bench", "speed-bench"]
    assert completion.drafters("look") == ["lookup", "lookahead"]
    assert completion.drafters("ngram,look") == ["ngram,lookup", "ngram,lookahead"]
    assert "llama3.1-8b" in completion.models("LLAMA3.1")
    assert completion.chats("") == []
    assert not Paths.of_this_user().history.exists()


@pytest.mark.parametrize("command", ["ask", "bench", "models", "doctor"])
def test_help_fits_a_narrow_terminal(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = specchat(command, "--help").stdout.splitlines()
    assert lines[0].startswith("Usage: specchat")
    assert max(map(len, lines)) <= 40
    assert not any(line.startswith(" " * 20) for line in lines)


def test_bench_json_takes_a_file_or_none(specchat: Specchat) -> None:
    read: list[str] = []
    for arguments in (["--json"], ["--json", "--html", "x"], ["--json", "f"], ["--json=f"]):
        command = typer_main.get_command(app).get_command(None, "bench")  # pyright: ignore
        with command.make_context("bench", arguments) as context:
            read.append(str(context.params["json"]))
    assert read == ["-", "-", "f", "f"]
