"""Copies of GGUF files with other weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import gguf
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind

from training.llama import Stored

_ARCHITECTURE = "general.architecture"


def write_copy(
    source: Path,
    path: Path,
    weights: Stored,
    stored: Type | None = None,
    *,
    keep: Callable[[str], bool] = bool,
) -> None:
    """Copy a file with other weights; those it lacks are left out.

    stored: form of these weights' matrices, by default that of the file's; where it cannot be made,
    the next larger one. keep: whether a tensor is to be copied, by name.
    """
    reader = gguf.GGUFReader(source)
    architecture = cast("str", reader.fields[_ARCHITECTURE].contents())
    writer = gguf.GGUFWriter(path, architecture)
    for field in reader.fields.values():
        if field.name == _ARCHITECTURE or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        of_list = field.types[-1] if kind == Kind.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, of_list)
    for tensor in reader.tensors:
        if not keep(tensor.name):
            continue
        data, form = tensor.data, tensor.tensor_type
        if tensor.name in weights:
            values = weights[tensor.name]
            if stored is not None and values.ndim > 1:
                form = stored
            data, form = _encoded(values, form)
        writer.add_tensor(tensor.name, data, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _encoded(values: Any, form: Type) -> tuple[Any, Type]:
    """Numbers in a form, or in the smallest that can be made and is no coarser."""
    for tried in (form, Type.Q8_0, Type.F16):
        try:
            return gguf.quantize(values, tried), tried
        except (NotImplementedError, gguf.quants.QuantError):
            continue
    raise AssertionError("halves can be made of anything")
