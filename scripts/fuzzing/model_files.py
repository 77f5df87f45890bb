"""Fuzzes model files: the readers of their headers, and loading with an engine."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from unittest.mock import patch

import numpy as np

from app.cli.commands.model_info import facts_of as facts_shown
from app.loading import checked_loader
from app.loading.placement import open_context, plan
from app.paths import Paths
from backends.base import ModelError, SpecchatError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.files.gguf_header import read_header, read_per_token, require_distinct_tokens
from backends.files.head_folders.head_folder import checked_head_folder, drafter_in_folder
from backends.files.mlx_folder import MlxFolder, read_mlx_folder, stored_tensors
from backends.files.mlx_gguf import reason_against
from backends.hardware.host import available_memory
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.sampling.settings import SamplingSettings
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import facts_of
from scripts.fuzzing import gguf as gguf_damage
from scripts.fuzzing.campaign import READ
from scripts.fuzzing.damage import changed, damaged
from scripts.fuzzing.gguf import small_models
from tests.fixtures.tiny.kinds import HEADS, MODELS, WRITERS
from tests.fixtures.tiny.tiny_file import WIDTH
from tests.fixtures.tiny.twins import twin

REFUSED_BY_CHECK = "refused by a check"
REFUSED_BY_ENGINE = "refused by the engine"
STOPPED = "stopped the child"
ANSWERED = "answered"

_CONTEXT = 8192
_TOKENS = 4


class Gguf:
    """GGUF files, read without an engine."""

    name = "gguf"
    file_name = "model.gguf"

    def samples(self, folder: Path) -> Sequence[bytes]:
        return [path.read_bytes() for path in small_models(folder)]

    def damage(self, good: bytes, random: Random) -> bytes:
        return random.choice((damaged, gguf_damage.damaged, gguf_damage.damaged))(good, random)

    def read(self, path: Path) -> str:
        """All readers are asked, also after one refused it."""
        refusal = _first_refusal(_READERS, path)
        _refusal(lambda: facts_of(path, MLX))  # which runs few of the files that others run
        fingerprint(path)
        if refusal is not None:
            raise refusal
        return READ


class Engine(Gguf):
    """GGUF files, loaded as by the app: checks, a trial in a child process, an answer."""

    name = "engine"

    def __init__(self) -> None:
        self._lent = _Lent()

    def read(self, path: Path) -> str:
        with patch.object(checked_loader, "ProofProcess", lambda: self._lent):
            return self._read(path)

    def _read(self, path: Path) -> str:
        paths = Paths(path.parent, path.parent, path.parent)
        models = checked_loader.CheckedLoader(paths, lambda _text: None)
        try:
            _checked_header(path)
            require_distinct_tokens(path)
            facts = facts_of(path)
            planned = plan(path.name, facts, None, _CONTEXT, available_memory())
        except SpecchatError:
            return REFUSED_BY_CHECK
        try:
            with closing(models.load(path, 1, 0, LLAMACPP)) as model:
                context, _ = open_context(model, planned, None)
                tokens = model.tokenizer.encode("Say the inge", special=False) or [0]
                said = [
                    event
                    for event in generate(
                        context, tokens, SamplingSettings(seed=1), Limits(_TOKENS, frozenset())
                    )
                    if isinstance(event, Step)
                ]
                for step in said:
                    for token in step.tokens:
                        model.tokenizer.piece(token)
        except ModelError as error:
            return STOPPED if _is_stop(error) else REFUSED_BY_ENGINE
        except SpecchatError:
            return REFUSED_BY_ENGINE
        return ANSWERED


class _Lent:
    """A child that is kept for the next file. One that a file stopped gets a second try alone."""

    def __init__(self) -> None:
        self._process = ProofProcess()

    def prove(self, trial: CrashCheck, file_bytes: int, tick: Callable[[], None]) -> None:
        try:
            self._prove(trial, file_bytes, tick)
        except ModelError as error:
            if "process ended" not in error.why:
                raise
            self._prove(trial, file_bytes, tick)
            raise AssertionError(f"only after other files: {error}") from error

    def _prove(self, trial: CrashCheck, file_bytes: int, tick: Callable[[], None]) -> None:
        try:
            self._process.prove(trial, file_bytes, tick)
        except ModelError as error:
            if _is_stop(error):  # which closes the child
                self._process = ProofProcess()
            raise

    def close(self) -> None:
        pass


def _is_stop(error: ModelError) -> bool:
    return "stops the engine" in error.what


def _figures(path: Path) -> None:
    header = read_header(path)
    read_per_token(header, header.tensors)


def _checked_header(path: Path) -> object:
    """Whether llama.cpp would be given the file; imported late, as it may not be installed."""
    from backends.llamacpp.loading import checked_header

    return checked_header(path)


_READERS: tuple[Callable[[Path], object], ...] = (
    _figures, facts_shown, facts_of, reason_against, _checked_header, require_distinct_tokens,
)  # fmt: skip
_FOLDER_READERS: tuple[Callable[[Path], object], ...] = (read_mlx_folder, facts_shown, facts_of)


def _first_refusal(readers: Sequence[Callable[[Path], object]], path: Path) -> SpecchatError | None:
    """Ask all of them, also after one refused it."""
    refusals = [_refusal(lambda reader=reader: reader(path)) for reader in readers]
    return next(filter(None, refusals), None)


def _refusal(read: Callable[[], object]) -> SpecchatError | None:
    try:
        read()
    except SpecchatError as error:
        return error
    return None


class Safetensors:
    """Safetensors files with their settings, read without an engine."""

    name = "safetensors"
    file_name = "model.safetensors"

    def samples(self, folder: Path) -> Sequence[bytes]:
        del folder
        return [_safetensors({"embed.weight": (64, 32), "norm.weight": (32,), "a.b": ()})]

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.randrange(2):
            return damaged(good, random)
        (size,) = struct.unpack_from("<Q", good)
        header = json.dumps(changed(json.loads(good[8 : 8 + size]), random)).encode()
        return struct.pack("<Q", len(header)) + header + good[8 + size :]

    def read(self, path: Path) -> str:
        (path.parent / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
        refusal = _refusal(lambda: stored_tensors(path))
        refusal = _first_refusal(_FOLDER_READERS, path.parent) or refusal
        fingerprint(path.parent)
        if refusal is not None:
            raise refusal
        return READ


class MlxConfig:
    """Settings of an MLX folder."""

    name = "mlx-config"
    file_name = "config.json"

    def samples(self, folder: Path) -> Sequence[bytes]:
        del folder
        return [json.dumps(_CONFIG).encode()]

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.randrange(3) == 0:
            return damaged(good, random)
        return json.dumps(changed(json.loads(good), random)).encode()

    def read(self, path: Path) -> str:
        weights = _safetensors({"embed.weight": (64, 32)})
        (path.parent / "model.safetensors").write_bytes(weights)
        refusal = _first_refusal(_FOLDER_READERS, path.parent)
        if refusal is not None:
            raise refusal
        return READ


_CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "layer_types": ["full_attention", "sliding_attention"],
    "sliding_window": 16,
    "quantization": {"bits": 4, "group_size": 64},
    "text_config": {"hidden_size": 32},
}


def _safetensors(shapes: dict[str, tuple[int, ...]]) -> bytes:
    header, data = dict[str, object](), b""
    for name, shape in shapes.items():
        values = np.zeros(shape, np.float32).tobytes()
        place = [len(data), len(data) + len(values)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": place}
        data += values
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


_ROOT = Path(__file__).parents[2]
_SECONDS = 8.0
"""Less than a campaign waits for a file."""


class HeadChild:
    """Runs tests/fixtures/tiny/head_run.py."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: SimpleQueue[str] = SimpleQueue()

    def drafted(self, target: Path, head: Path) -> list[int] | str | None:
        """Tokens that a head drafts, or why the engine refused; None if the child ended or hung."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([str(target), str(head)]) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=_SECONDS)
        except (OSError, Empty):
            line = ""
        if not line:
            self.close()
            return None
        answer: Any = json.loads(line)
        return answer

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fixtures.tiny.head_run"],
            cwd=_ROOT,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lines = self._lines = SimpleQueue[str]()

        def receive() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        Thread(target=receive, daemon=True).start()
        return process

    def close(self) -> None:
        """Kill the child."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


_TARGETS = {
    "eagle3": "llama",
    "dflash": "qwen3",
    "gemma4-assistant": "gemma4",
    "qwen35": "qwen35",
    "nemotron_h_moe": "nemotron_h_moe",
}
"""Models by architecture of a head."""


class RecentModels(Engine):
    """Models of 2026, loaded as by the app."""

    name = "recent-models"

    def samples(self, folder: Path) -> Sequence[bytes]:
        return [write(folder / f"{kind}.gguf").read_bytes() for kind, write in MODELS.items()]


class Heads(Gguf):
    """Heads beside sound models: checks, then a draft in a child process."""

    name = "heads"

    def samples(self, folder: Path) -> Sequence[bytes]:
        self._folder = TemporaryDirectory()  # the models are read as long as this worker lives
        self._child = HeadChild()
        for kind in _TARGETS.values():
            WRITERS[kind](self._target(kind))
        return [WRITERS[kind](folder / f"{kind}.gguf").read_bytes() for kind in HEADS]

    def _target(self, kind: str) -> Path:
        return Path(self._folder.name, f"{kind}.gguf")

    def read(self, path: Path) -> str:
        from backends.llamacpp.head_checks import checked_head

        try:
            target = self._target(_TARGETS.get(read_header(path).architecture, "llama"))
            checked_head(path, target)
            require_distinct_tokens(path)
        except ModelError:
            return REFUSED_BY_CHECK
        found = self._child.drafted(target, path)
        if found is None:
            return STOPPED
        return REFUSED_BY_ENGINE if isinstance(found, str) else ANSWERED


_KINDS = ("eagle3", "eagle3-borrowing", "dflash", "dflash2", "dspark")
_LENGTH = struct.Struct("<Q")
_TARGET = MlxFolder(
    {"model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": 6, "vocab_size": 354}, 0
)


class HeadFolders:
    """Folders with EAGLE-3, DFlash, DSpark and DFlash2 heads: settings and weights in one file."""

    name = "head-folders"
    file_name = "folder"

    def samples(self, folder: Path) -> Sequence[bytes]:
        samples: list[bytes] = []
        for kind in _KINDS:
            head = twin(WRITERS[kind](folder / f"{kind}.gguf"), folder / kind)
            settings = (head / "config.json").read_bytes()
            weights = (head / "model.safetensors").read_bytes()
            samples.append(_LENGTH.pack(len(settings)) + settings + weights)
        return samples

    def damage(self, good: bytes, random: Random) -> bytes:
        settings, weights = _parts(good)
        if random.randrange(2):
            settings = json.dumps(changed(json.loads(settings), random)).encode()
        elif random.randrange(2):
            (size,) = _LENGTH.unpack_from(weights)
            header = json.dumps(changed(json.loads(weights[8 : 8 + size]), random)).encode()
            weights = _LENGTH.pack(len(header)) + header + weights[8 + size :]
        else:
            weights = damaged(weights, random)
        return _LENGTH.pack(len(settings)) + settings + weights

    def read(self, path: Path) -> str:
        """What is described without a fault has to pass the check too, but for its tokens."""
        settings, weights = _parts(path.read_bytes())
        (path.parent / "config.json").write_bytes(settings)
        (path.parent / "model.safetensors").write_bytes(weights)
        found = drafter_in_folder(path.parent)
        if found is None:
            raise ModelError("it brings nothing that drafts")
        checked_head_folder(path.parent, _TARGET)
        assert not found.fault, "what has a fault is refused"
        return READ


def _parts(data: bytes) -> tuple[bytes, bytes]:
    (size,) = _LENGTH.unpack_from(data)
    return data[8 : 8 + size], data[8 + size :]
