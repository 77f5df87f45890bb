"""Kind of files: folders with heads in safetensors, beside a sound model."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random

from backends.base import ModelError
from backends.files.head_folders.head_folder import checked_head_folder, drafter_in_folder
from backends.files.mlx_folder import MlxFolder
from scripts.fuzzing.damage import damaged
from scripts.fuzzing.json_damage import changed
from scripts.fuzzing.kind import READ
from tests.fixtures.tiny.kinds import WRITERS
from tests.fixtures.tiny.tiny_file import WIDTH
from tests.fixtures.tiny.twins import twin

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
