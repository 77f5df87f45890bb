"""Fuzzes the JSON files with specchat's measurements and learned data."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from app.learned.acceptance_memory import AcceptanceMemory, TrialResult, TrialResults
from app.learned.calibrations import Calibrations
from app.learned.tuned_recipe import Tuned, TuningResults, remember, tuned, tuned_file
from app.paths import Paths
from app.settings.answering import restored
from backends.base import ModelInfo, Rollback
from backends.engines.engine_facts import Runner
from decoding.checks.agreement import Reply
from decoding.estimation.acceptance import Acceptance
from models.hub import repository_cache as receipts
from models.metadata.identity import content_hash
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import Tried
from scripts.fuzzing.kind import READ
from scripts.fuzzing.text_damage import damaged_text

_RECIPE = Recipe.parse("q4_0")


class JsonKind:
    """One damaged file at the path of every such file; it has the schema of one of them."""

    name = "json"
    file_name = "kept.json"

    def samples(self, folder: Path) -> Sequence[bytes]:
        paths, info = _place(folder)
        calibration = {
            "schema": 3, "engine": "e", "device": "d", "threads": 2, "times": 2, "switching": 0.01,
            "seconds": {"1": 0.01, "2": 0.015, "4": 0.02}, "unsure": {"2": 0.1},
        }  # fmt: skip
        TrialResults(info, paths).add("drafter", TrialResult(0.4, "", has_other_tokens=False))
        memory = AcceptanceMemory(info.path, paths)
        memory.remember("key", Acceptance({"kind": (3.0, 5.0)}), {"name": "n", "path": "p.gguf"})
        memory.save()
        remember(Tuned(_RECIPE, 0.5, 0.3), info, paths)
        results = TuningResults(info, paths, _silent)
        results.add_replies([Reply((1, 2), (3, 4))])
        results.add(_RECIPE, Tried(0.5, 0.3))
        receipts.record(paths.downloads, "org/name", "commit", ["a.gguf", "b.gguf"])
        content_hash(info.path, folder / "hashes.json")
        return [
            json.dumps(calibration).encode(),
            json.dumps({"temperature": 0.5, "top_k": 3, "preset": "exact"}).encode(),
            *(path.read_bytes() for path in sorted(folder.rglob("*.json*")) if path.is_file()),
        ]

    def damage(self, good: bytes, random: Random) -> bytes:
        return damaged_text(good, random)

    def read(self, path: Path) -> str:
        data = path.read_bytes()
        paths, info = _place(path.parent)
        runner = Runner.of(info)
        calibrations = Calibrations(paths, _silent)
        for place in (
            calibrations.file(info), tuned_file(info, paths), paths.downloads,
            TuningResults(info, paths, _silent).path, *_named(info, paths),
        ):  # fmt: skip
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        calibrations.known_drafter(info.path, runner)
        TrialResults(info, paths).of("drafter")
        memory = AcceptanceMemory(info.path, paths)
        memory.recall("key")
        memory.known_drafters()
        memory.save()
        tuned(info, paths)
        TuningResults(info, paths, _silent)
        receipts.is_ours(paths.downloads, "org/name", "commit", "a.gguf")
        receipts.record(paths.downloads, "org/name", "commit", ["c.gguf"])
        content_hash(info.path, path)
        restored(data.decode(errors="replace"))
        return READ


def _place(folder: Path) -> tuple[Paths, ModelInfo]:
    model = folder / "model.gguf"
    model.write_bytes(b"GGUF")
    info = ModelInfo(
        model, "model", "llama", "Q4_0", 1000, 500, 500, 100, 4, 512, Rollback.ANY,
        "llamacpp", "e", "d", 2,
    )  # fmt: skip
    return Paths(folder / "config", folder / "data", folder / "cache"), info


def _named(info: ModelInfo, paths: Paths) -> list[Path]:
    """Paths of the files of trial results and acceptance, as named by their writers."""
    TrialResults(info, paths).add("drafter", TrialResult(0.4))
    memory = AcceptanceMemory(info.path, paths)
    memory.remember("key", Acceptance({"kind": (3.0, 5.0)}), {})
    memory.save()
    return [*paths.findings.iterdir(), *paths.acceptance.iterdir()]


def _silent(_text: str) -> None: ...
