"""What a GGUF file brings for drafting, by its header: its own layers, or a drafter for another.

Names and rules are those of llama.cpp as in llama-cpp-python 0.3.36 (src/models: qwen35.cpp,
gemma4-assistant.cpp, eagle3.cpp, dflash.cpp).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from backends.files.gguf_header import GgufHeader, Tensor


class TrainedKind(StrEnum):
    NEXT_TOKEN_LAYERS = "next-token layers"
    ASSISTANT = "assistant"
    EAGLE3 = "EAGLE-3 head"
    DFLASH = "DFlash drafter"
    DSPARK = "DSpark drafter"
    LAST_STATE = "last-state head"

    @property
    def word(self) -> str:
        """Its short name, as in `--draft`."""
        return _WORDS[self]

    @property
    def variant(self) -> str:
        """How it runs weights that are a model's too, as in ModelInfo."""
        return self.name.lower()


_WORDS = {
    TrainedKind.NEXT_TOKEN_LAYERS: "mtp",
    TrainedKind.ASSISTANT: "assistant",
    TrainedKind.EAGLE3: "eagle3",
    TrainedKind.DFLASH: "dflash",
    TrainedKind.DSPARK: "dspark",
    TrainedKind.LAST_STATE: "hydra",
}


@dataclass(frozen=True, slots=True)
class TrainedDrafter:
    """A drafter in a file.

    is_alone: whether the file has nothing else and is no model by itself. architecture: of its
    target, empty for any. layers: of the drafter. width: of the target's hidden states. n_vocab: of
    the target; both 0 if unknown. target_layers: of the target, whose inputs it reads. longest:
    tokens of a draft at most, 0 without a limit. draw_bytes, read_bytes: of weights read to draft a
    token, and to read tokens before. fault: why it cannot draft for any model, empty if it may.
    """

    kind: TrainedKind
    layers: int = 0
    width: int = 0
    n_vocab: int = 0
    is_alone: bool = True
    architecture: str = ""
    target_layers: tuple[int, ...] = ()
    longest: int = 0
    draw_bytes: int = 0
    read_bytes: int = 0
    fault: str = ""

    def misfit(self, architecture: str, width: int, n_vocab: int) -> str:
        """Why it cannot draft for a target of these dimensions, 0 if unknown; empty if it may."""
        if self.fault:
            return self.fault
        if self.architecture not in ("", architecture):
            return f"it drafts for {self.architecture}, not for {architecture}"
        if self.width and self.width != width:
            return f"it reads hidden states of {self.width:,} numbers; the model's have {width:,}"
        if self.n_vocab and n_vocab and self.n_vocab != n_vocab:
            return f"it knows {self.n_vocab:,} tokens, the model {n_vocab:,}"
        return ""


_ASSISTANT, _EAGLE3, _DFLASH = "gemma4-assistant", "eagle3", "dflash"

_MOST_LAYERS = 512
"""As many as llama.cpp loads."""

_EAGLE3_INPUTS = 3

_OWN_EMBEDDING, _OWN_OUTPUT = ".nextn.embed_tokens.weight", ".nextn.shared_head_head.weight"


def drafter_in(header: GgufHeader, tensors: Sequence[Tensor]) -> TrainedDrafter | None:
    """The drafter in a file; None if it brings none.

    header: of the first part; tensors: of all parts.
    """
    of_head = {_ASSISTANT: _assistant, _EAGLE3: _eagle3, _DFLASH: _dflash}
    find = of_head.get(header.architecture, _next_token_layers)
    return find(header, {tensor.name: tensor for tensor in tensors})


def misfit(drafter: TrainedDrafter, target: GgufHeader) -> str:
    """Why a drafter cannot draft for a target, as far as headers tell; empty if it may."""
    width, layers = target.integer("embedding_length"), trunk_layers(target)
    if why := drafter.misfit(target.architecture, width, target.n_vocab):
        return why
    beyond = [layer for layer in drafter.target_layers if not 0 <= layer <= layers]
    return f"it reads layer {beyond[0]:,} of a model that has {layers:,}" if beyond else ""


def trunk_layers(header: GgufHeader) -> int:
    """Layers of a model without those that predict ahead."""
    return header.integer("block_count") - max(header.integer("nextn_predict_layers"), 0)


_Named = dict[str, Tensor]


def _next_token_layers(header: GgufHeader, tensors: _Named) -> TrainedDrafter | None:
    count, blocks = header.integer("nextn_predict_layers"), header.integer("block_count")
    if not 0 < count <= blocks <= _MOST_LAYERS:
        return None
    own = range(blocks - count, blocks)
    lacking = [layer for layer in own if f"blk.{layer}.nextn.eh_proj.weight" not in tensors]
    layer_bytes = _read(header, tensors, tuple(f"blk.{layer}." for layer in own)) // count
    return TrainedDrafter(
        TrainedKind.NEXT_TOKEN_LAYERS,
        is_alone="blk.0.attn_norm.weight" not in tensors,
        architecture=header.architecture,
        layers=count,
        width=header.integer("embedding_length"),
        n_vocab=header.n_vocab,
        draw_bytes=layer_bytes + _output_bytes(tensors, f"blk.{own[0]}{_OWN_OUTPUT}"),
        read_bytes=layer_bytes,
        fault=_lacks(f"the weights of next-token layer {lacking[0]}") if lacking else "",
    )


def _assistant(header: GgufHeader, tensors: _Named) -> TrainedDrafter:
    needed = ("nextn.pre_projection.weight", "nextn.post_projection.weight", "token_embd.weight")
    return TrainedDrafter(
        TrainedKind.ASSISTANT,
        architecture="gemma4",
        layers=header.integer("block_count"),
        width=header.integer("embedding_length_out"),
        n_vocab=header.n_vocab,
        draw_bytes=_read(header, tensors, ("",)),
        fault=_first_lacking(tensors, needed),
    )


def _eagle3(header: GgufHeader, tensors: _Named) -> TrainedDrafter:
    inputs = header.integers("target_layers")
    fault = _first_lacking(tensors, ("fc.weight",))
    if len(inputs) != _EAGLE3_INPUTS:
        fault = f"it names {len(inputs):,} of the model's layers instead of {_EAGLE3_INPUTS}"
    layer_bytes = _read(header, tensors, ("blk.",))
    return TrainedDrafter(
        TrainedKind.EAGLE3,
        layers=header.integer("block_count"),
        width=header.integer("target_hidden_size"),
        n_vocab=header.n_vocab,
        target_layers=inputs,
        draw_bytes=layer_bytes + _output_bytes(tensors),
        read_bytes=layer_bytes + _read(header, tensors, ("fc.",)),
        fault=fault,
    )


def _dflash(header: GgufHeader, tensors: _Named) -> TrainedDrafter:
    """Layers that draft a block of tokens in one pass; DSpark has one more matrix.

    Its rows may begin with that of the text's last token.
    """
    inputs, block = header.integers("target_layers"), header.integer("block_size")
    is_dspark = "markov_w1.weight" in tensors
    from_last = is_dspark and bool(header.integer("sample_from_anchor", 1))
    fault = "" if inputs else "it names none of the model's layers"
    return TrainedDrafter(
        TrainedKind.DSPARK if is_dspark else TrainedKind.DFLASH,
        layers=header.integer("block_count"),
        width=header.integer("embedding_length"),
        n_vocab=header.n_vocab,
        target_layers=inputs,
        longest=max(block if from_last else block - 1, 0),
        draw_bytes=_read(header, tensors, ("",)),
        read_bytes=_read(header, tensors, ("fc.",)),
        fault=_first_lacking(tensors, ("fc.weight",)) or fault,
    )


def _first_lacking(tensors: _Named, names: Sequence[str]) -> str:
    return next((_lacks(name) for name in names if name not in tensors), "")


def _lacks(what: str) -> str:
    return f"the file lacks {what}"


def _output_bytes(tensors: _Named, *own: str) -> int:
    """Bytes of the output layer: the drafter's own, the model's, or the embedding."""
    for name in (*own, "output.weight", "token_embd.weight"):
        if name in tensors:
            return tensors[name].stored_bytes
    return 0


def _read(header: GgufHeader, tensors: _Named, prefixes: tuple[str, ...]) -> int:
    """Bytes of the tensors of these prefixes that a pass over one token reads."""
    share = header.expert_share
    looked_up = "token_embd.weight" if "output.weight" in tensors else ""
    return sum(
        round(tensor.stored_bytes * (share if "_exps" in name else 1.0))
        for name, tensor in tensors.items()
        if name.startswith(prefixes)
        and name != looked_up
        and not name.endswith((_OWN_EMBEDDING, _OWN_OUTPUT))
    )
