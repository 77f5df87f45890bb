"""`specchat models`: list, pull, remove, info."""

import json
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.loading.select import stopped
from app.paths import Paths
from models.catalogue import find
from models.hub import DownloadJob, DownloadRequest, HubSettings, Phase
from tests.app.conftest import Launch, Specchat
from tests.fixtures.drafter_files import EAGLE3, EAGLE3_KEYS, OWN, TARGET_KEYS, written
from tests.fixtures.local_hub import COMMIT, LocalHub

TinyGguf = Callable[..., Path]

PATIENCE_SECONDS = 60
REPOSITORY = "maker/Tiny-GGUF"


@pytest.fixture(autouse=True)
def _no_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder() -> Path:
    """The user's folder of models."""
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def hub(local_hub: LocalHub, tiny_gguf: TinyGguf) -> LocalHub:
    content = tiny_gguf("tiny.gguf").read_bytes()
    files = {"Tiny-Q4_K_M.gguf": content, "Tiny-Q8_0.gguf": content + bytes(1 << 20)}
    local_hub.repositories[REPOSITORY] = files
    return local_hub


def _listed(specchat: Specchat) -> list[dict[str, Any]]:
    listing = json.loads(specchat("models", "list", "--json").stdout)
    assert listing["schema"] == 1
    return [model for model in listing["models"] if model["origin"] != "bundled"]


def test_from_pull_to_remove(specchat: Specchat, hub: LocalHub) -> None:
    pulled = specchat("models", "pull", REPOSITORY)
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.startswith(f"{REPOSITORY}:Q4_K_M  ")
    assert pulled.stderr == ""
    (model,) = _listed(specchat)
    size = len(hub.repositories[REPOSITORY]["Tiny-Q4_K_M.gguf"])
    assert (model["name"], model["size_bytes"]) == (f"{REPOSITORY}:Q4_K_M", size)
    assert model["origin"] == "hub cache"
    assert model["name"] in specchat("models", "list").stdout
    removed = specchat("models", "remove", model["name"].lower())
    assert (removed.returncode, removed.stdout) == (0, "")
    assert _listed(specchat) == []
    shown = specchat("models", "list").stdout
    assert "demo" in shown
    assert "llama3.1-8b" in shown.partition("to download")[2]


def test_stars_and_orders_and_what_each_is_good_at(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCHAT_STARS", "qwen3-4b, gone")
    listing = json.loads(specchat("models", "list", "--sort", "size", "--json").stdout)
    first, *others = listing["catalogue"]
    assert (first["name"], first["starred"]) == ("qwen3-4b", True)
    assert first["good_at"] == ["chat", "code", "reasoning"]
    sizes = [model["size_bytes"] for model in others]
    assert sizes == sorted(sizes)
    shown = specchat("models", "list", "--sort", "last-use").stdout
    assert re.search("^★ qwen3-4b .*good at chat, code, reasoning", shown, re.MULTILINE)
    info = json.loads(specchat("models", "info", "qwen3-4b", "--json").stdout)
    assert info["good_at"] == first["good_at"]
    assert specchat("models", "list", "--sort", "colour").returncode == 2


def test_pull_in_json(specchat: Specchat, hub: LocalHub) -> None:
    pulled = json.loads(specchat("models", "pull", f"{REPOSITORY}:q8_0", "--json").stdout)
    assert pulled["schema"] == 1
    assert pulled["name"] == f"{REPOSITORY}:Q8_0"
    assert (pulled["repository"], pulled["commit"]) == (REPOSITORY, COMMIT)
    assert Path(pulled["path"]).stat().st_size == pulled["size_bytes"]
    removed = json.loads(specchat("models", "remove", pulled["name"], "--json").stdout)
    assert removed["removed"]["path"] == pulled["path"]


def test_info(specchat: Specchat, tiny_gguf: TinyGguf, folder: Path) -> None:
    tiny_gguf("any.gguf").rename(folder / "Tiny-Q4_0.gguf")
    facts = json.loads(specchat("models", "info", "tiny-q4_0", "--json").stdout)
    expected = {
        "schema": 1,
        "name": "Tiny-Q4_0",
        "origin": "models folder",
        "architecture": "llama",
        "quantization": "Q4_0",
        "context": 512,
        "layers": 1,
        "vocabulary": 300,
        "chat_template": False,
        "license": None,
    }
    assert {key: facts[key] for key in expected} == expected
    shown = specchat("models", "info", str(folder / "Tiny-Q4_0.gguf")).stdout
    assert "architecture      llama\n" in shown
    assert "license" not in shown
    (folder / "odd.gguf").write_bytes(b"GGUF")
    assert specchat("models", "info", "odd").returncode == 1


def test_info_of_what_the_catalogue_offers(specchat: Specchat) -> None:
    facts = json.loads(specchat("models", "info", "llama3-8b", "--json").stdout)
    expected = {
        "schema": 1,
        "name": "llama3.1-8b",
        "installed": False,
        "path": None,
        "size_bytes": 4_920_000_000,
        "size_source": "page",
        "get": "specchat models pull llama3.1-8b",
        "parameters": 8_030_000_000,
        "quantization": "Q4_K_M",
        "context": 131_072,
        "layers": None,
        "chat_template": None,
        "license": "llama3.1",
        "repository": "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
    }
    assert {key: facts[key] for key in expected} == expected
    assert facts["fit"] in ("fits", "tight", "too big")
    one = {"alias": "1b", "kind": "same-vocabulary", "model": "llama3.2-1b"}
    assert one.items() <= next(each for each in facts["drafters"] if each["alias"] == "1b").items()
    shown = specchat("models", "info", "llama3-8b:q8_0").stdout
    assert "installed         no\n" in shown
    assert "8.5 GB (rounded, from a page of the hub)\n" in shown
    assert "specchat models pull llama3.1-8b:q8_0\n" in shown
    assert "1b (llama3.2-1b)" in shown
    assert "None" not in shown


@pytest.mark.usefixtures("llamacpp")
def test_info_names_trained_drafters_and_what_was_published(specchat: Specchat) -> None:
    shown = specchat("models", "info", "qwen3.8-27b").stdout
    assert re.search(r"drafters +124m .*, mtp \(next-token layers\), dflash \(Qwen3.8", shown)
    assert "dspark (RedHatAI/Qwen3.8-27B-speculator.dspark, DSpark drafter for MLX)" in shown
    assert "mtp code 1.8, prose 1.3 on an RTX 3090; code 1.1, prose 0.8 on an M4;" in shown
    listed = specchat("models", "list").stdout
    words = "drafters: 0.8b, mtp, dflash; with MLX: dspark\n"
    assert re.search(rf"qwen3.8-27b .*, {words}", listed)
    refused = specchat("ask", "--model", "qwen3.8-27b", "--draft", "mtp", "--offline", "Hello")
    assert refused.returncode == 3, "the model is not here"


@pytest.mark.usefixtures("llamacpp")
def test_info_of_a_file_names_what_it_brings(specchat: Specchat, folder: Path) -> None:
    keys = {**TARGET_KEYS, "nextn_predict_layers": 1}
    written(folder / "Hybrid-Q8_0.gguf", "qwen35", keys, OWN)
    written(folder / "eagle3-Hybrid.gguf", "eagle3", EAGLE3_KEYS, EAGLE3)
    facts = json.loads(specchat("models", "info", "Hybrid-Q8_0", "--json").stdout)
    kinds = [drafter["kind"] for drafter in facts["trained_drafters"]]
    assert kinds == ["next-token layers", "EAGLE-3 head"]
    assert all(drafter["misfit"] is None for drafter in facts["trained_drafters"])
    shown = specchat("models", "info", "Hybrid-Q8_0").stdout
    expected = (
        "mtp (next-token layers in Hybrid-Q8_0.gguf), eagle3 (EAGLE-3 head in eagle3-Hybrid.gguf)"
    )
    assert f"drafters          {expected}, 124m" in shown


def test_info_has_the_same_keys_wherever_a_model_is(specchat: Specchat) -> None:
    asked = ("demo", "llama3-8b", "gemma4-12b", "gpt-oss-20b")
    keys = {tuple(json.loads(specchat("models", "info", one, "--json").stdout)) for one in asked}
    assert len(keys) == 1
    here = json.loads(specchat("models", "info", "demo", "--json").stdout)
    assert (here["installed"], here["size_source"], here["get"]) == (True, "file", None)
    assert here["drafters"]


def test_every_offered_model_can_be_asked_about(specchat: Specchat) -> None:
    listing = json.loads(specchat("models", "list", "--json").stdout)
    for offered in listing["catalogue"]:
        ended = specchat("models", "info", offered["name"])
        assert ended.returncode == 0, ended.stderr
        assert f"specchat models pull {offered['name']}\n" in ended.stdout
        entry = find(offered["name"])
        assert entry is not None
        trained = {one.alias for one in entry.drafters if one.kind.is_trained}
        assert trained <= {*offered["drafters"], *offered["mlx_drafters"]}


def test_info_of_an_alias_is_of_the_file_that_is_here(
    specchat: Specchat, tiny_gguf: TinyGguf, folder: Path
) -> None:
    file = folder / "Qwen_Qwen3-4B-Q4_K_M.gguf"
    tiny_gguf("any.gguf").rename(file)
    facts = json.loads(specchat("models", "info", "qwen3-4b", "--json").stdout)
    assert (facts["installed"], facts["path"], facts["vocabulary"]) == (True, str(file), 300)


def test_info_of_a_repository_that_nobody_knows_offers_to_pull_it(specchat: Specchat) -> None:
    ended = specchat("models", "info", "maker/unheard-of")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "specchat models pull maker/unheard-of" in ended.stderr


def test_info_of_an_mlx_folder(specchat: Specchat, folder: Path, tmp_path: Path) -> None:
    quantized, floats = folder / "Small-4bit", tmp_path / "floats"
    config = {"model_type": "llama", "quantization": {"bits": 4}, "vocab_size": 32_000}
    _put_folder(quantized, config, {})
    facts = json.loads(specchat("models", "info", "Small-4bit", "--json").stdout)
    assert (facts["format"], facts["quantization"], facts["vocabulary"]) == ("MLX", "4-bit", 32_000)
    assert not facts["chat_template"]
    weights = {"a": ("BF16", [3, 5], 30), "b": ("F32", [2], 8)}
    _put_folder(floats, {"model_type": "llama"}, weights)
    (floats / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    shown = specchat("models", "info", str(floats)).stdout
    assert re.search(r"parameters +17\n", shown)
    assert re.search(r"quantization +bfloat16\n", shown)
    assert re.search(r"chat template +yes\n", shown)


def _put_folder(
    folder: Path, config: dict[str, Any], tensors: dict[str, tuple[str, list[int], int]]
) -> None:
    """An MLX folder with tensors, each by type, shape and bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def test_names_that_are_not_there(specchat: Specchat, folder: Path) -> None:
    (folder / "Small-Q4_0.gguf").write_bytes(b"GGUF")
    for command in ("info", "remove"):
        ended = specchat("models", command, "small-q4")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Nearest: Small-Q4_0" in ended.stderr


@pytest.mark.parametrize("name", ["a/b/c", "/x", "x/", ":Q4_0"])
def test_what_names_no_repository(specchat: Specchat, name: str) -> None:
    ended = specchat("models", "pull", name)
    assert ended.returncode == 2
    assert "organization/name" in ended.stderr


def test_exit_codes_of_failed_downloads(specchat: Specchat, hub: LocalHub) -> None:
    ended = specchat("models", "pull", f"{REPOSITORY}:Q6_K")
    assert ended.returncode == 2
    assert "Q4_K_M (" in ended.stderr
    hub.refusals["/api/"] = (429, {"Retry-After": "9"})
    ended = specchat("models", "pull", REPOSITORY)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "in 9 seconds" in ended.stderr


def test_an_unreachable_hub_offers_what_is_installed(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "Small-Q4_0.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ended = specchat("models", "pull", REPOSITORY)
    assert ended.returncode == 3
    assert "127.0.0.1:9 cannot be reached" in ended.stderr
    assert "On this machine: demo, Small-Q4_0" in ended.stderr


@pytest.mark.parametrize("place", ["option", "before", "variable", "setting"])
def test_offline_asks_nobody(
    specchat: Specchat, hub: LocalHub, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    arguments = ["models", "pull", REPOSITORY]
    if place == "option":
        arguments.append("--offline")
    elif place == "before":
        arguments.insert(0, "--offline")
    elif place == "variable":
        monkeypatch.setenv("SPECCHAT_OFFLINE", "1")
    else:
        settings = Paths.of_this_user().settings
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("offline = true\n")
    ended = specchat(*arguments)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "offline" in ended.stderr
    assert hub.asked == []


def test_offline_lists_no_servers_models(specchat: Specchat) -> None:
    arguments = ("models", "list", "--backend", "remote", "--url", "http://127.0.0.1:9")
    assert "no server is asked" in specchat(*arguments, "--offline").stderr


def test_unreadable_settings_forbid_the_network(specchat: Specchat, hub: LocalHub) -> None:
    settings = Paths.of_this_user().settings
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("offline = maybe\n")
    assert specchat("models", "pull", REPOSITORY).returncode == 2
    assert hub.asked == []


@pytest.mark.slow
def test_ctrl_c_keeps_what_came(
    specchat: Specchat, launch: Launch, hub: LocalHub, tmp_path: Path
) -> None:
    hub.pause_at = 500_000
    process = launch("models", "pull", f"{REPOSITORY}:Q8_0", stdin=subprocess.DEVNULL)
    hub.wait_until_kept(tmp_path, 500_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (130, b"")
    assert err == b"stopped; the downloaded part is kept, and the same command resumes it\n"
    assert f"unfinished: {REPOSITORY}, 500.0 kB" in specchat("models", "list").stderr
    hub.released.set()
    hub.pause_at = None
    assert specchat("models", "pull", f"{REPOSITORY}:Q8_0").returncode == 0
    assert hub.ranges() == [None, "bytes=500000-"]


def test_an_unfinished_download_is_discarded(
    specchat: Specchat, hub: LocalHub, tmp_path: Path
) -> None:
    hub.refusals["/storage/"] = (403, {})
    assert specchat("models", "pull", REPOSITORY).returncode == 3
    blobs = tmp_path / "hf" / "hub" / f"models--{REPOSITORY.replace('/', '--')}" / "blobs"
    (blobs / f"{'0' * 64}.specchat.incomplete").write_bytes(bytes(2_000))
    listing = json.loads(specchat("models", "list", "--json").stdout)
    assert listing["unfinished_bytes"] == {REPOSITORY: 2_000}
    ended = specchat("models", "remove", REPOSITORY)
    assert (ended.returncode, ended.stderr) == (
        0,
        f"discarded the unfinished download of {REPOSITORY}\n",
    )
    assert list(blobs.iterdir()) == []


@pytest.mark.slow
def test_progress_is_one_line_on_the_terminal(on_terminal: Any, hub: LocalHub) -> None:
    hub.pause_at = 500_000
    terminal = on_terminal("models", "pull", f"{REPOSITORY}:Q8_0")
    shown = terminal.read_until("500.0 kB of 1.1 MB")
    hub.released.set()
    code, rest = terminal.end()
    assert code == 0, rest
    assert "\n" not in shown
    assert f"{REPOSITORY}:Q8_0" in rest


@pytest.mark.slow
def test_listing_needs_no_hub_client() -> None:
    program = (
        "import sys\n"
        "from app.cli.main import main\n"
        "sys.argv = ['specchat', 'models', 'list']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('huggingface_hub', 'httpx2') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_before_the_download_begins_promises_nothing(tmp_path: Path) -> None:
    settings = HubSettings.of_environment(tmp_path / "downloads.json", offline=True)
    job = DownloadJob(DownloadRequest(REPOSITORY), settings)
    assert job.wait(PATIENCE_SECONDS)
    assert job.progress.phase is Phase.ASKING
    assert stopped(job) == "stopped before the download began"
