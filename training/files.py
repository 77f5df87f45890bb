"""Files of training: arrays with some facts, copies of GGUF files, folders of safetensors."""

import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Form
from gguf import GGUFValueType as Kind
from numpy.typing import NDArray

from backends.base import DiskFullError, ModelError
from backends.base.safe_files import make_private_folder, open_regular, private_opener, write_whole

Stored = dict[str, NDArray[Any]]
_FACTS = "facts"


def packed(facts: Mapping[str, Any], arrays: Stored) -> bytes:
    """facts: as JSON has them."""
    made = io.BytesIO()
    told = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    np.savez(made, allow_pickle=False, **{_FACTS: told}, **arrays)
    return made.getvalue()


def write(path: Path, content: bytes | str) -> None:
    """Write into a folder that is made if it is not there. Raises DiskFullError."""
    try:
        make_private_folder(path.parent)
        write_whole(path, content)
    except OSError as error:
        raise DiskFullError(f"{path.name} cannot be kept", str(error)) from error


def read(path: Path, *names: str) -> tuple[dict[str, Any], Stored]:
    """Facts, and the arrays of these names, or all. Raises ModelError: it is gone, or damaged."""
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(bytes(stored[_FACTS]))
            wanted = names or (name for name in stored.files if name != _FACTS)
            return facts, {name: stored[name] for name in wanted}
    except (BadZipFile, EOFError, KeyError, OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read", str(error)) from error


_ARCHITECTURE = "general.architecture"
_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def write_copy(
    source: Path,
    path: Path,
    weights: Stored,
    form: Form | None = None,
    *,
    keep: Callable[[str], bool] = bool,
) -> None:
    """Copy a file with other weights; those it lacks are left out.

    form: of these weights' matrices, by default that of the file's; where it cannot be made, the
    next larger one. keep: whether a tensor is to be copied, by name.
    """
    reader = gguf.GGUFReader(source)
    writer = writer_as(reader, path, cast("str", reader.fields[_ARCHITECTURE].contents()))
    for tensor in reader.tensors:
        if keep(tensor.name) and tensor.name in weights:
            values = weights[tensor.name]
            wanted = form if form is not None and values.ndim > 1 else tensor.tensor_type
            add(writer, tensor.name, values, wanted)
        elif keep(tensor.name):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    finish(writer)


def writer_as(
    reader: gguf.GGUFReader, path: Path, architecture: str, prefix: str = ""
) -> gguf.GGUFWriter:
    """A file that the user alone can read, with facts of another whose names have the prefix."""
    with open(path, "wb", opener=private_opener):
        pass
    writer = gguf.GGUFWriter(path, architecture)
    for field in reader.fields.values():
        is_own = field.name == _ARCHITECTURE or field.name.startswith("GGUF.")
        if field.name.startswith(prefix) and not is_own:
            kind = field.types[0]
            of_list = field.types[-1] if kind == Kind.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, of_list)
    return writer


def add(writer: gguf.GGUFWriter, name: str, values: NDArray[Any], form: Form) -> None:
    """Add a tensor in a form, or in the smallest that can be made and is no coarser."""
    for tried in (form, Form.Q8_0, Form.F16):
        try:
            data = gguf.quantize(values, tried)
        except (NotImplementedError, gguf.quants.QuantError):
            continue
        writer.add_tensor(name, data, raw_dtype=tried)
        return
    raise AssertionError("halves can be made of anything")


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Stored) -> None:
    """config.json and model.safetensors, matrices as half floats."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, place = list[bytes](), 0
    for name, values in tensors.items():
        stored = values.astype(np.float16) if values.ndim > 1 else values
        data.append(np.ascontiguousarray(stored).tobytes())
        end = place + len(data[-1])
        kind, shape = _TYPES[str(stored.dtype)], list(stored.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, end]}
        place = end
    head = json.dumps(header).encode()
    size = struct.pack("<Q", len(head))
    write_whole(folder / "model.safetensors", b"".join([size, head, *data]))
    write_whole(folder / "config.json", json.dumps(config, indent=2))
