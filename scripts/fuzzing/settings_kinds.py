"""Fuzzes the TOML files: settings and catalogue."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from app.settings import file
from models import catalogue
from scripts.fuzzing.kind import READ
from scripts.fuzzing.text_damage import damaged_text

_WRITTEN = """\
theme = "nord"   # mine
temperature = 0.5
top_k = 40
system = \"\"\"
Be "brief".
\"\"\"
[keys]
new = "f10"
[presets.exact]
system = 'Answer exactly.'
temperature = 0.0
max_tokens = 200
"""


class SettingsKind:
    """The settings file, read and then edited as by the settings screen."""

    name = "settings"
    file_name = "config.toml"

    def samples(self, folder: Path) -> Sequence[bytes]:
        path = folder / self.file_name
        file.save(path, {"temperature": 0.2, "model": "demo", "seed": 7, "offline": True})
        return [_WRITTEN.encode(), path.read_bytes()]

    def damage(self, good: bytes, random: Random) -> bytes:
        return damaged_text(good, random)

    def read(self, path: Path) -> str:
        file.examined(path)
        file.save(path, {"panel": "hidden"})
        return READ


class CatalogueKind:
    """The catalogue, with every entry as the model list shows it."""

    name = "catalogue"
    file_name = "catalogue.toml"

    def samples(self, folder: Path) -> Sequence[bytes]:
        del folder
        return [catalogue.FILE.read_bytes()]

    def damage(self, good: bytes, random: Random) -> bytes:
        return damaged_text(good, random)

    def read(self, path: Path) -> str:
        for entry in catalogue.read_file(path):
            for quantization in entry.quantizations:
                entry.size(quantization)
                entry.file(quantization)
            if entry.attention is not None:
                assert all(one.numbers_per_token > 0 for one in entry.attention.layers)
        return READ
