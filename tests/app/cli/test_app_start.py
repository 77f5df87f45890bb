"""What the app starts with: typed mistakes end it at once, mistakes in settings are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer import core
from typer import main as typer_main

from app.cli.app_start import _noting_crashes, app_start
from app.cli.main import app
from app.evaluation.settings_check import check_settings
from app.paths import Paths
from app.settings.in_effect import AppStart
from backends.base import UsageError

OnTerminal = Callable[..., Any]


@pytest.fixture
def start(home: Path) -> Callable[..., AppStart]:
    """What the app would start with: start("--draft", "off", settings="...")."""

    def started(*arguments: str, settings: str = "") -> AppStart:
        path = home / "config" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings, encoding="utf-8")
        group = typer_main.get_command(app)
        assert isinstance(group, core.TyperGroup)
        with group.make_context("specchat", list(arguments)) as context:
            continues = bool(context.params["continues"])
            paths = Paths.of_this_user()
            return app_start(context, paths, continues=continues)  # pyright: ignore[reportArgumentType]

    return started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "qwen3-4"), "no model qwen3-4. Nearest: qwen3-4b (2.5 GB, to"),
        (("--model", "nosuch"), "no model nosuch"),
        (("--model", "gone.gguf"), "no file gone.gguf"),
        (("--draft", "nosuch"), "no drafter nosuch"),
        (("--draft", "lokup"), "no drafter lokup. Nearest: lookup"),
        (("--ctx", "0"), "--ctx cannot be 0"),
        (("--lossy", "eers"), "eers"),
        (("--backend", "cuda"), "cuda"),
    ],
)
def test_a_typed_mistake_ends_before_the_app_opens(
    on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    code, written = on_terminal(*arguments).end()
    assert code == 2
    assert f"specchat: {told}" in written or told in written
    assert "\x1b[?1049h" not in written
    assert written.count("specchat:") == 1


def test_mistakes_in_settings_are_told_and_the_rest_applies(
    start: Callable[..., AppStart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_CTX", "many")
    given = start(
        settings='model = "nosuch"\ndraft = "lokup"\ntemperature = 0.1\nfuture = 1\n'
        'system = "Be kind."\nenter_sends = false\nmax_tokens = 9\n'
    )
    assert (given.session.model, given.session.draft, given.session.ctx) == (None, "auto", None)
    assert (given.system, given.answering.max_tokens) == ("Be kind.", 9)
    assert given.answering.sampling.temperature == 0.1
    assert not given.preferences.enter_sends
    future, ctx, model, draft = given.notices
    assert "'future'" in future
    assert "SPECCHAT_CTX cannot be 'many'" in ctx
    assert "no model nosuch" in model
    assert "Nearest: lookup" in draft


def test_an_unreadable_file_is_one_notice(start: Callable[..., AppStart]) -> None:
    given = start(settings="=")
    (notice,) = given.notices
    assert "line 1" in notice
    assert given.session.offline


def test_typed_options_win(start: Callable[..., AppStart]) -> None:
    given = start("--draft", "off", "--ctx", "512", settings='draft = "lookup"\nctx = 9\n')
    assert (given.session.draft, given.session.ctx) == ("off", 512)
    assert (given.notices, given.continues) == ((), False)


def test_the_last_chat_can_be_continued(start: Callable[..., AppStart]) -> None:
    assert start("--continue").continues


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--continue", "ask", "hi"), ("--continue",)])
def test_nothing_but_the_app_continues_a_chat(
    on_terminal: OnTerminal, arguments: tuple[str, ...]
) -> None:
    code, written = on_terminal(*arguments).end()  # on a terminal that cannot show the app
    assert code == 2
    assert "--continue" in written


def test_the_app_starts_with_a_preset_and_its_model(
    start: Callable[..., AppStart], home: Path
) -> None:
    for kind, name, text in (
        ("presets", "own.toml", 'model = "demo"\ntop_k = 3'), ("prompts", "new.md", "Never."),
    ):  # fmt: skip
        (home / "config" / kind).mkdir(parents=True)
        (home / "config" / kind / name).write_text(text, encoding="utf-8")
    begun = start("--preset", "own")
    assert (begun.preset, begun.session.model) == ("own", "demo")
    assert not any("new.md" in one for one in begun.notices)  # doctor tells it
    assert any("/new is a command" in one.what for one in check_settings(Paths.of_this_user()))
    assert start("--preset", "editor").session.model is None
    (home / "config" / "presets" / "odd.toml").write_text('model = "nope-model"')
    with pytest.raises(UsageError, match="preset odd: no model nope-model"):
        start("--preset", "odd")
    with pytest.raises(UsageError, match=r"^no model other-model"):
        start("--preset", "odd", "--model", "other-model")
    for more in ((), ("--model", "demo")):
        with pytest.raises(UsageError, match="Nearest: own"):
            start("--preset", "owm", *more)


def test_after_a_crash_its_cause_is_told_once_and_models_are_checked_anew(
    monkeypatch: pytest.MonkeyPatch, paths: Paths
) -> None:
    monkeypatch.setattr("faulthandler.enable", lambda *_, **__: None)  # pytest has its own
    monkeypatch.setattr("faulthandler.disable", lambda: None)
    for file in (paths.crash, paths.proofs):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Fatal Python error: Segmentation fault\n\nThread 1")
    with _noting_crashes(paths) as told:
        (line,) = told
        assert line.startswith("The last start ended in a crash (Segmentation fault), and models")
        assert line.endswith(str(paths.last_error))
        assert "Thread 1" in paths.last_error.read_text()
        assert not paths.proofs.exists()
        paths.crash.write_text("Windows fatal exception: one that was handled")
    with _noting_crashes(paths) as told:
        assert told == ()
