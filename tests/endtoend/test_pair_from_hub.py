"""A target and a drafter of another vocabulary by their short names, from a hub to the answer."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from models import catalogue
from scripts.models.change_vocabulary import Change, change_vocabulary
from tests.fixtures.local_hub import LocalHub

pytestmark = pytest.mark.usefixtures("llamacpp")

ASKED = ("ask", "the other", "--temperature", "0", "--max-tokens", "16", "--threads", "1", "--json")
PATIENCE_SECONDS = 60
Ask = Callable[..., tuple[dict[str, Any], str]]

# Runs the command in a process of its own, which believes to have room for any model.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import app.engine.session_opening
app.engine.session_opening.free_memory = lambda *_: 1 << 40
from app.cli.main import main
main()
"""


class Screen(io.StringIO):
    """Standard error watched by someone who lets a paused hub go on once progress shows."""

    def __init__(self, hub: LocalHub) -> None:
        super().__init__()
        self._hub = hub

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "50.0 kB of" in text:
            self._hub.released.set()
        return super().write(text)


@pytest.fixture(autouse=True)
def _room_for_any_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue's size of the target counts before its file is here."""
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: 1 << 40)


@pytest.fixture
def hub(local_hub: LocalHub, tiny_llama: Callable[..., Path], tmp_path: Path) -> LocalHub:
    """Serves small stand-ins under the names that the catalogue gives.

    The drafter has the weights of the target; its tokens are renumbered, and some mean other text.
    """
    target, drafter = tiny_llama(seed=6, form="gpt2"), tmp_path / "changed.gguf"
    change_vocabulary(target, drafter, Change(0.05))
    for name, path in (("llama3-8b", target), ("gpt2-124m", drafter)):
        entry = catalogue.find(name)
        assert entry is not None
        file = entry.file(entry.default_quantization)
        local_hub.repositories[entry.repository] = {file: path.read_bytes()}
    return local_hub


@pytest.fixture
def ask(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Asks the 8B model in this process: the object it printed, and what was on the screen."""

    def run(*options: str) -> tuple[dict[str, Any], str]:
        out, err = io.StringIO(), Screen(hub)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["specchat", "--model", "llama3-8b", *options, *ASKED])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main()
        assert not ended.value.code, err.getvalue()
        return json.loads(out.getvalue()), err.getvalue()

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_from_two_names_to_an_answer(ask: Ask, hub: LocalHub) -> None:
    hub.pause_at = 50_000
    drafted, shown = ask("--draft", "124m")
    assert "llama3.1-8b: downloading" in shown
    assert "gpt2-124m: asking the hub" in shown
    assert drafted["model"]["ref"] == "llama3.1-8b"
    assert drafted["draft"]["drafters"] == ["124m"]
    assert any("across vocabularies" in note for note in drafted["draft"]["notes"])
    assert drafted["stats"]["accepted"] > 0
    assert 0.0 < drafted["stats"]["acceptance"] <= 1.0
    assert len(hub.ranges()) == 2

    hub.asked.clear()
    plain, _ = ask("--draft", "off")
    again, shown = ask("--draft", "124m")
    offline, _ = ask("--draft", "124m", "--offline")
    assert hub.asked == []
    assert "asking the hub" not in shown
    assert len(plain["token_ids"]) == 16
    for other in (drafted, again, offline):
        assert other["token_ids"] == plain["token_ids"]


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize("interrupted", ["Llama", "gpt2"])
def test_an_interrupted_download_goes_on_in_the_next_run(
    ask: Ask, hub: LocalHub, interrupted: str
) -> None:
    hub.pause_at, hub.pause_only = 50_000, interrupted
    command = [sys.executable, "-c", PROGRAM, "--model", "llama3-8b", "--draft", "124m", *ASKED]
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams) as process:
        hub.wait_until_kept(Path(os.environ["HF_HOME"]), 50_000)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (130, b"")
    assert str(err).endswith("the downloaded part is kept, and the same command resumes it\\n'")
    hub.released.set()
    hub.pause_at = None
    report, _ = ask("--draft", "124m")
    assert report["draft"]["drafters"] == ["124m"]
    assert sorted(map(str, hub.ranges())) == ["None", "None", "bytes=50000-"]


def test_what_cannot_fit_is_refused_before_it_is_downloaded(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.engine.session_opening.free_memory", lambda *_: 1 << 30)
    monkeypatch.setattr(sys, "argv", ["specchat", "--model", "llama3-8b", *ASKED])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "needs" in capsys.readouterr().err
    assert hub.asked == []
