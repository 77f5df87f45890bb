"""Drafters of blocks in safetensors: DFlash (arXiv 2602.06036), and DSpark and DFlash2 on it.

Two layouts are published: with the drafter's own settings in `dflash_config` or at the top (z-lab,
SpecForge, DeepSpec), and with a layer's in `transformer_layer_config` (speculators of vLLM).
"""

import re
from dataclasses import dataclass

from backends.files.head_folders.eagle3_layout import INNER
from backends.files.head_folders.shapes import (
    AttentionShape,
    HeadLayout,
    Tensors,
    attention_shape,
    rotary_of,
    vocabularies,
)
from backends.files.head_folders.stored_head import Settings, StoredHead

OWN = "dflash_config"

_MOST_LAYERS = 64
_MOST_TOKENS = 256
"""Of a block: published ones have up to 16."""

_IGNORED = re.compile(r"t2d$|verifier_|confidence_(?:head|proj)\.|.*rotary_emb\.inv_freq$")
_LAYER = re.compile(r"layers\.(\d{1,4})\.")
_NORMS = ("input_layernorm", "post_attention_layernorm")
_CONVOLUTIONS = ("attention_conv", "mlp_conv")
_SELECTOR = "candidate_selector"
_CODEBOOKS = ("predecessor_codebook", "successor_codebook")


@dataclass(frozen=True, slots=True)
class Selector:
    """What joins the tokens of a block (DFlash2).

    candidates: of each place. rank: of the scores of pairs. kernel, group: taps of the convolutions
    over a block, and numbers that share their coefficients.
    """

    candidates: int
    rank: int
    kernel: int
    group: int


@dataclass(frozen=True, slots=True)
class LayerSight:
    """What a layer sees. window: tokens back, 0 for all. is_causal: nothing later in its block."""

    window: int = 0
    is_causal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout(HeadLayout):
    """Shapes of a drafter of blocks, and what its variant does.

    block: tokens of a pass; mask: the one that stands for those to be drafted; from_last: whether
    the row of the text's last token drafts too. markov_rank: of the scores of a token after another
    (DSpark), 0 without. scales: of the embeddings, of attention's values and of the logits.
    softcap: of the logits, 0 for none.
    """

    layers: tuple[LayerSight, ...]
    block: int
    mask: int
    from_last: bool
    markov_rank: int
    selector: Selector | None
    embedding_scale: float
    value_scale: float
    logit_scale: float
    softcap: float

    @property
    def longest(self) -> int:
        return self.block if self.from_last else self.block - 1


def block_layout(head: StoredHead) -> BlockLayout:
    """The layout of a drafter in a folder."""
    written = head.settings
    settings = written.under(written.part(INNER))
    own = settings.under(settings.part(OWN))
    tensors = Tensors(head, _common)
    count = _layers(tensors, settings)
    _refuse_variants(head, own)
    width = tensors.vector("hidden_norm.weight")
    taps = _taps(own, settings)
    target_width = settings.count("target_hidden_size") or tensors.matrix("fc")[1] // len(taps)
    tensors.require("fc", width, len(taps) * target_width)
    tensors.vector("norm.weight", width)
    attention, feed_forward = _shape_of_layers(tensors, settings, count, width)
    ties_output = settings.flag("tie_word_embeddings") and tensors.has("embed_tokens")
    n_vocab, n_drafted = vocabularies(
        tensors, settings, width, target_width, ties_output=ties_output
    )
    markov_rank = _markov_rank(tensors, own, n_vocab, n_drafted)
    block, mask = own.count("block_size"), own.count("mask_token_id", n_vocab)
    if not 2 <= block <= _MOST_TOKENS:
        raise ValueError(f"it drafts in blocks of {block:,} tokens (block_size)")
    if mask >= n_vocab:
        raise ValueError("it does not say which token stands for drafted ones (mask_token_id)")
    layout = BlockLayout(
        names=tensors.names,
        width=width,
        target_width=target_width,
        taps=taps,
        n_vocab=n_vocab,
        n_drafted=n_drafted,
        feed_forward=feed_forward,
        layers=tuple(_sight(own, settings, layer) for layer in range(count)),
        attention=attention,
        rotary=rotary_of(settings, attention.head_size),
        epsilon=settings.positive("rms_norm_eps", 1e-6),
        block=block,
        mask=mask,
        from_last=own.flag("sample_from_anchor", bool(markov_rank) and not _is_of_vllm(settings)),
        markov_rank=markov_rank,
        selector=_selector(tensors, own, count, width, n_vocab),
        embedding_scale=own.positive("input_embedding_scale", 1.0),
        value_scale=own.positive("attention_value_scale", 1.0),
        logit_scale=own.positive("output_multiplier", 1.0),
        softcap=max(own.number("final_logit_softcapping", 0.0), 0.0),
        has_embeddings=tensors.has("embed_tokens"),
        has_output=tensors.has("lm_head"),
        ties_output=ties_output,
    )
    tensors.refuse_others()
    return layout


def _common(name: str) -> str:
    """Common name of a tensor, empty for one that drafting does without."""
    rest = name.removeprefix("model.")
    if _IGNORED.match(rest):
        return ""
    return f"{rest}.weight" if rest.endswith(_CODEBOOKS) else rest


def _layers(tensors: Tensors, settings: Settings) -> int:
    found = {match[1] for name in tensors.by_name if (match := _LAYER.match(name))}
    count = settings.count("num_hidden_layers") or len(found)
    if not 0 < count <= _MOST_LAYERS or len(found) != count:
        raise ValueError(f"it has tensors of {len(found):,} layers, not {count:,}")
    return count


def _refuse_variants(head: StoredHead, own: Settings) -> None:
    """Refuse what is drafted with otherwise, though the tensors may be the same."""
    for key, usual in (("hidden_act", "silu"), ("markov_head_type", "vanilla")):
        if (found := own.text(key) or usual) != usual:
            raise ValueError(f"{key} in its config.json is {found[:40]}, which is not known")
    for key in _OTHER_WAYS:
        if own.flag(key):
            raise ValueError(f"{key} in its config.json is true, which is not known")
    if "mask_embedding.pt" in head.pickles:
        raise ValueError("a part of it is in mask_embedding.pt, a program, which is never run")


_OTHER_WAYS = ("dflash_query_causal", "log_snr_conditioning", "enable_qwen35_gated_q_proj")
"""Variants of DSpark's trainers, which have no tensors of their own."""


def _is_of_vllm(settings: Settings) -> bool:
    """Whether layers are counted by inputs, and the text's last token drafts nothing."""
    return settings.has(INNER) or settings.has("aux_hidden_state_layer_ids")


def _taps(own: Settings, settings: Settings) -> tuple[int, ...]:
    """Layers whose inputs are read; listed by outputs, each is the input of the next layer."""
    if of_vllm := settings.counts("aux_hidden_state_layer_ids"):
        return of_vllm
    if listed := own.counts("target_layer_ids"):
        return tuple(layer + 1 for layer in listed)
    raise ValueError("it does not say which layers of a model it reads (target_layer_ids)")


def _shape_of_layers(
    tensors: Tensors, settings: Settings, count: int, width: int
) -> tuple[AttentionShape, int]:
    """The shape that the attention of all layers has, and the width of their feed-forward parts."""
    shapes: set[tuple[AttentionShape, int]] = set()
    for layer in range(count):
        module = f"layers.{layer}"
        for norm in _NORMS:
            tensors.vector(f"{module}.{norm}.weight", width)
        attention = attention_shape(tensors, f"{module}.self_attn", settings, width, width)
        shapes.add((attention, tensors.feed_forward(f"{module}.mlp", width)))
    if len(shapes) > 1:
        raise ValueError("its layers differ in shape")
    return shapes.pop()


def _markov_rank(tensors: Tensors, own: Settings, n_vocab: int, n_drafted: int) -> int:
    if not tensors.has("markov_head.markov_w1") and not tensors.has("markov_head.markov_w2"):
        return 0
    rank = tensors.matrix("markov_head.markov_w1")[1]
    tensors.require("markov_head.markov_w1", n_vocab, rank)
    tensors.require("markov_head.markov_w2", n_drafted, rank)
    if own.count("markov_rank", rank) != rank:
        raise ValueError(
            f"markov_rank is {own.count('markov_rank'):,}, and its tensors have {rank:,}"
        )
    return rank


def _selector(
    tensors: Tensors, own: Settings, count: int, width: int, n_vocab: int
) -> Selector | None:
    if not tensors.has(f"{_SELECTOR}.hidden_projection"):
        return None
    if tensors.has("markov_head.markov_w1"):
        raise ValueError("it joins its tokens in two ways")
    found = Selector(
        candidates=own.count("selector_top_k"),
        rank=own.count("selector_rank"),
        kernel=own.count("conv_kernel_size"),
        group=own.count("conv_group_size"),
    )
    if not 0 < found.candidates <= min(n_vocab, 1024) or not 0 < found.kernel <= _MOST_TOKENS:
        raise ValueError(f"it selects among {found.candidates:,} tokens of each place")
    if not found.group or width % found.group:
        raise ValueError(f"{width:,} numbers are no whole groups of {found.group:,}")
    tensors.require(f"{_SELECTOR}.hidden_projection", found.rank, width)
    for book in _CODEBOOKS:
        tensors.require(f"{_SELECTOR}.{book}", n_vocab, found.rank)
    coefficients = 2 * found.kernel * (width // found.group)
    for layer in range(count):
        for part in (f"layers.{layer}.{part}" for part in _CONVOLUTIONS):
            tensors.require(f"{part}.kernel_projection", coefficients, width)
            tensors.require_block(f"{part}.base_kernel", (2, found.kernel, width))
    return found


def _sight(own: Settings, settings: Settings, layer: int) -> LayerSight:
    """What a layer sees, as llama.cpp's converter reads it (conversion/qwen.py).

    In vLLM's layout a layer with a window sees no later places of its block, unless it says so.
    """
    is_causal = own.flag("is_causal", own.flag("causal"))
    all_windows = own.flag("use_swa")
    kinds = settings.texts("layer_types")
    has_window = layer < len(kinds) and kinds[layer] == "sliding_attention"
    window = own.count("swa_window_size") or settings.count("sliding_window")
    used = all_windows or (
        has_window and settings.flag("use_sliding_window", _is_of_vllm(settings))
    )
    if not used or not window:
        return LayerSight(0, is_causal)
    is_causal_inside = settings.has(INNER) and not own.flag("sliding_window_non_causal")
    return LayerSight(window, is_causal or is_causal_inside)
