"""GGUF files that are made from others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gguf
from gguf import GGMLQuantizationType as Form
from gguf import GGUFValueType as Kind
from numpy.typing import NDArray

from backends.base.safe_files import private_opener
from training.stored import Stored

_ARCHITECTURE = "general.architecture"


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
