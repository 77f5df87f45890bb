"""Loading a llama GGUF file into mlx-lm's llama, with its quantized layers and its tokenizer."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx_lm.models import llama
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors
from tokenizers import pre_tokenizers as cut

from backends.base import ModelError
from backends.files.gguf_header import GgufHeader, read_header
from backends.files.mlx_folder import MlxFolder
from backends.files.mlx_gguf import GROUP, MODULES, ROPE_FACTORS, read_settings
from backends.mlx.folder_checks import require_memory
from backends.mlx.tokenizer import MlxTokenizer

# Rebuilding the tokenizer of a GGUF file with the tokenizers library.
#
# Byte-level BPE only. Pre-tokenizers are those of llama.cpp (llama-vocab.cpp), so that both
# backends give the same token ids.


_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""Token types of GGUF."""

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = "llama-bpe"
"""Adds a beginning-of-text token by default; words of the vocabulary need no merges."""


def read_engine(header: GgufHeader, texts: dict[str, Any]) -> Tokenizer:
    tokens: list[str] = texts.get("tokenizer.ggml.tokens", [])
    listed = texts.get("tokenizer.ggml.token_type")
    kinds: list[int] = [] if listed is None else listed.tolist()
    if len(kinds) != len(tokens):
        raise ModelError("its tokenizer is damaged", "not every token has a type")
    cutter = str(header.metadata.get("tokenizer.ggml.pre"))
    engine = Tokenizer(_merger(tokens, kinds, texts.get("tokenizer.ggml.merges", []), cutter))
    engine.pre_tokenizer = _cutter(cutter)
    engine.decoder = decoders.ByteLevel()
    for kind, is_special in ((_CONTROL, True), (_USER_DEFINED, False)):
        named = [text for text, other in zip(tokens, kinds, strict=True) if other == kind]
        engine.add_tokens(
            [AddedToken(text, special=is_special, normalized=False) for text in named]
        )
    bos = header.metadata.get("tokenizer.ggml.bos_token_id")
    is_wanted = header.metadata.get("tokenizer.ggml.add_bos_token", cutter == _LLAMA)
    if is_wanted and isinstance(bos, int) and bos < len(tokens):
        engine.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)]
        )
    return engine


def _merger(
    tokens: Sequence[str], kinds: Sequence[int], merges: Sequence[str], cutter: str
) -> models.BPE:
    """Usable merges: like llama.cpp, those with parts that are no tokens are skipped."""
    vocabulary = {
        text: number
        for number, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind != _UNUSED
    }
    split = (merge.partition(" ") for merge in merges)
    pairs = [
        (left, right)
        for left, _, right in split
        if left in vocabulary and right in vocabulary and left + right in vocabulary
    ]
    return models.BPE(vocabulary, pairs, ignore_merges=cutter == _LLAMA)


def _cutter(name: str) -> cut.PreTokenizer:
    gpt2 = cut.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt-2":
        return gpt2
    if name == "smollm":
        return cut.Sequence([cut.Digits(individual_digits=True), gpt2])
    words = _WORDS.format(digits="{1,3}" if name == _LLAMA else "")
    bytes_alone = cut.ByteLevel(add_prefix_space=False, use_regex=False)
    return cut.Sequence([cut.Split(Regex(words), "isolated"), bytes_alone])


_LAYER = re.compile(r"blk\.(\d+)\.(.*)")


class StretchedRope(nn.Module):
    """Rotary embedding of Llama 3.1 and later.

    factors: divisors of the frequencies, shape (width / 2,).
    """

    def __init__(self, width: int, base: float, factors: mx.array) -> None:
        super().__init__()
        self._width = width
        self._wavelengths = base ** (mx.arange(0, width, 2) / width) * factors

    def __call__(self, x: mx.array, offset: int = 0) -> mx.array:
        return mx.fast.rope(
            x,
            self._width,
            traditional=False,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )


def load_gguf(path: Path) -> tuple[MlxFolder, nn.Module, MlxTokenizer]:
    """Check a file, and load its model and tokenizer. A damaged one may raise anything."""
    settings = read_settings(path)
    require_memory(path, settings.weight_bytes)
    tensors, texts = read_file(path)
    return settings, build(settings.config, tensors), tokenizer(read_header(path), texts)


def read_file(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Tensors (quantized ones in three parts) and metadata; safe only for a checked file."""
    loaded = mx.load(str(path), format="gguf", return_metadata=True)
    return cast("tuple[dict[str, mx.array], dict[str, Any]]", loaded)


def build(config: dict[str, Any], tensors: dict[str, mx.array]) -> nn.Module:
    factors = tensors.pop(f"{ROPE_FACTORS}.weight", None)
    weights = renamed(config, tensors)
    module = llama.Model(llama.ModelArgs.from_dict(config))

    def packing(name: str, _layer: nn.Module) -> bool | dict[str, int]:
        if f"{name}.scales" not in weights:
            return False
        columns = weights[f"{name}.scales"].shape[-1] * GROUP
        return {"group_size": GROUP, "bits": 32 * weights[f"{name}.weight"].shape[-1] // columns}

    nn.quantize(module, class_predicate=packing)
    module.eval()
    module.load_weights(list(weights.items()))
    if factors is not None:
        for layer in cast("list[Any]", module.layers):
            rope = StretchedRope(config["head_dim"], config["rope_theta"], factors)
            layer.self_attn.rope = rope
    mx.eval(module.parameters())
    return module


def renamed(config: dict[str, Any], tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Tensors of a file under mlx-lm's names, in one number type.

    llama.cpp rotates neighbours and mlx-lm rotates halves, so rows of queries and keys are restored
    to their order in training.
    """
    heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    has_half = any(tensor.dtype == mx.float16 for tensor in tensors.values())
    weights: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        match = _LAYER.fullmatch(stem)
        module = MODULES[match[2] if match else stem]
        value = in_halves(tensor, heads[module]) if module in heads else tensor
        if has_half and value.dtype == mx.float32:
            value = value.astype(mx.float16)
        prefix = f"model.layers.{match[1]}." if match else ""
        weights[f"{prefix}{module}.{part}"] = value
    return weights


def in_halves(rows: mx.array, heads: int) -> mx.array:
    """Reorder the rows of each head, shape (heads * width, columns): even rows, then odd ones."""
    by_pair = rows.reshape(heads, -1, 2, rows.shape[-1])
    return by_pair.swapaxes(1, 2).reshape(rows.shape)


def tokenizer(header: GgufHeader, texts: dict[str, Any]) -> MlxTokenizer:
    names = ("bos", "eos", "eot", "eom")
    bos, *ids = [header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in names]
    template = header.metadata.get("tokenizer.chat_template")
    return MlxTokenizer(
        read_engine(header, texts),
        n_vocab=header.n_vocab,
        end_tokens=frozenset(token for token in ids if isinstance(token, int)),
        template=template if isinstance(template, str) else None,
        bos=bos if isinstance(bos, int) else None,
        eos=ids[0] if isinstance(ids[0], int) else None,
    )
