"""Convert a llama GGUF file to an MLX folder.

Run: `python -m scripts.models.make_mlx_folder GGUF FOLDER [--bits 4|8]`.

In float32 the weights are those of the file, dequantized; with --bits they are quantized again, in
groups of 32. The tokenizer and the chat template are those of the file.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from backends.base import SpecchatError, UsageError
from backends.files.gguf_header import GgufHeader, read_header
from backends.files.mlx_gguf import GROUP, ROPE_FACTORS, read_settings
from backends.mlx.gguf import build, read_engine, read_file


def make_folder(source: Path, folder: Path, bits: int | None = None) -> None:
    """Write folder whole, or not at all.

    Raises:
        UsageError: the folder is there already, or no config.json can describe the model.
        ModelError: the file is no llama model, or damaged.
    """
    if folder.exists():
        raise UsageError(f"{folder} exists already", "", "Name a folder that does not.")
    header = read_header(source)
    config = read_settings(source).config
    if any(tensor.name.startswith(ROPE_FACTORS) for tensor in header.tensors):
        raise UsageError(
            "its rotary embedding is stretched by a tensor",
            "config.json cannot hold one",
            "Run the GGUF file itself.",
        )
    config.pop("quantization", None)
    module = build(config, _dequantized(source))
    if bits:
        config["quantization"] = {"group_size": GROUP, "bits": bits}
        nn.quantize(module, group_size=GROUP, bits=bits)
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    weights = dict(tree_flatten(module.parameters()))
    mx.save_safetensors(str(unfinished / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_json(unfinished / "config.json", config)
    write_tokenizer(source, unfinished)
    unfinished.rename(folder)


def write_tokenizer(source: Path, folder: Path) -> None:
    """Write the tokenizer of a file into a folder that is there.

    Raises:
        ModelError: its parts do not fit together.
    """
    header, texts = read_header(source), read_file(source)[1]
    read_engine(header, texts).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_settings(header, texts))


def _dequantized(source: Path) -> dict[str, mx.array]:
    return {
        tensor.name: mx.array(gguf.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(source).tensors
    }


def _tokenizer_settings(header: GgufHeader, texts: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name in ("bos", "eos"):
        number = header.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(number, int):
            settings[f"{name}_token"] = texts["tokenizer.ggml.tokens"][number]
    template = header.metadata.get("tokenizer.chat_template")
    return settings | ({"chat_template": template} if template else {})


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the folder; 1 with the reason where it cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, metavar="GGUF")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--bits", type=int, choices=(4, 8), help="quantize again")
    given = parser.parse_args(arguments)
    try:
        make_folder(given.source, given.folder, given.bits)
    except SpecchatError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
