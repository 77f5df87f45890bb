"""EAGLE-3 heads in safetensors: Li et al. 2025 (arXiv 2503.01840), section 3.

Two layouts are published: with `midlayer.*` (SafeAILab's EAGLE, SpecForge, AngelSlim), and with
`layers.0.*` and the layer's settings in `transformer_layer_config` (speculators of vLLM).
"""

import re
from dataclasses import dataclass

from backends.files.head_folders.shapes import (
    DEFAULT_TAPS,
    HeadLayout,
    Tensors,
    attention_shape,
    rotary_of,
    vocabularies,
)
from backends.files.head_folders.stored_head import Settings, StoredHead

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
INNER = "transformer_layer_config"

_IGNORED = re.compile(r"t2d$|verifier_|.*rotary_emb\.inv_freq$")
_NAME = re.compile(r"^(?:model\.)?(midlayer\.|layers\.0\.)?(.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Layout(HeadLayout):
    """Shapes of an EAGLE-3 head, and what its variant does.

    taps: none if those by default. window: tokens that it sees, 0 for all. keeps_normed: whether
    what its layer adds to is the normed state (norm_before_residual). norms_inputs, norms_taps:
    whether the model's states are normed together, or each (norm_before_fc, fc_norm).
    hands_on_normed: whether it drafts on from the normed state (norm_output).
    """

    window: int
    keeps_normed: bool
    norms_inputs: bool
    norms_taps: bool
    hands_on_normed: bool
    has_bias: bool

    def taps_in(self, layers: int) -> tuple[int, ...]:
        """The layers whose inputs it reads of a model with so many: by default as in the paper."""
        return self.taps or (2, layers // 2, layers - 3)


def eagle3_layout(head: StoredHead) -> Eagle3Layout:
    """The layout of a head in a folder."""
    written = head.settings
    settings = written.under(written.part(INNER))
    tensors = Tensors(head, _common)
    _refuse_variants(written, settings)
    width = tensors.vector("layer.hidden_norm.weight")
    taps = _taps(written)
    n_taps = len(taps) or DEFAULT_TAPS
    inputs = tensors.matrix("fc")[1]
    target_width = settings.count("target_hidden_size") or inputs // n_taps
    tensors.require("fc", width, n_taps * target_width)
    for norm in ("layer.input_layernorm", "layer.post_attention_layernorm", "norm"):
        tensors.vector(f"{norm}.weight", width)
    n_vocab, n_drafted = vocabularies(tensors, settings, width, target_width)
    attention = attention_shape(tensors, "layer.self_attn", settings, 2 * width, width)
    layout = Eagle3Layout(
        names=tensors.names,
        width=width,
        target_width=target_width,
        taps=taps,
        n_vocab=n_vocab,
        n_drafted=n_drafted,
        feed_forward=tensors.feed_forward("layer.mlp", width),
        attention=attention,
        rotary=rotary_of(settings, attention.head_size),
        epsilon=settings.positive("rms_norm_eps", 1e-6),
        window=_window(settings),
        keeps_normed=_keeps_normed(written),
        norms_inputs=_has_norm(tensors, written, "norm_before_fc", "input_norm", inputs),
        norms_taps=_norms_taps(tensors, written, n_taps, target_width),
        hands_on_normed=written.flag("norm_output"),
        has_bias=tensors.has_bias("fc", width),
        has_embeddings=tensors.has("embed_tokens"),
        has_output=tensors.has("lm_head"),
    )
    tensors.refuse_others()
    return layout


def _common(name: str) -> str:
    match = _NAME.match(name)
    assert match is not None, "it matches anything"
    of_layer, rest = match.groups()
    if _IGNORED.match(rest):
        return ""
    return f"layer.{rest}" if of_layer else rest


def _refuse_variants(written: Settings, settings: Settings) -> None:
    """Refuse what is drafted with otherwise, though the tensors may be the same."""
    if settings.count("num_hidden_layers", 1) != 1:
        raise ValueError(f"it has {settings.count('num_hidden_layers'):,} layers, and 1 can be run")
    kind = written.text("speculators_model_type") or "eagle3"
    if kind != "eagle3":
        raise ValueError(f"it is a speculator of the kind {kind[:40]}, which is not known")
    if (activation := settings.text("hidden_act") or "silu") != "silu":
        raise ValueError(f"its activation is {activation[:40]}, which is not known")


def _taps(written: Settings) -> tuple[int, ...]:
    """Layers whose inputs are read, none if it does not say.

    At the top, as vLLM and llama.cpp read them, they are counted by inputs; inside eagle_config, as
    SGLang and SpecForge do, by outputs, of which each is the input of the next layer.
    """
    if top := written.counts(LAYER_IDS):
        return top
    inner = written.part("eagle_config")
    if not inner.flag("use_aux_hidden_state", True):
        raise ValueError("it reads the last layer alone, as EAGLE does and EAGLE-3 does not")
    return tuple(layer + 1 for layer in inner.counts(LAYER_IDS))


def _window(settings: Settings) -> int:
    if settings.texts("layer_types")[:1] != ("sliding_attention",):
        return 0
    return settings.count("sliding_window") if settings.flag("use_sliding_window", True) else 0


def _keeps_normed(written: Settings) -> bool:
    """Whether the residual is normed. Programs differ in what they take a missing value for."""
    if written.has(INNER) and not written.has("norm_before_residual"):
        raise ValueError("it does not say what its layer adds to (norm_before_residual)")
    return written.flag("norm_before_residual")


def _has_norm(tensors: Tensors, written: Settings, key: str, module: str, size: int) -> bool:
    has_it = tensors.has(module)
    if written.flag(key, has_it) != has_it:
        raise ValueError(f"{key} is {written.flag(key)}, and {module}.weight says otherwise")
    if has_it:
        tensors.vector(f"{module}.weight", size)
    return has_it


def _norms_taps(tensors: Tensors, written: Settings, taps: int, width: int) -> bool:
    has_them = written.flag("fc_norm", tensors.has("fc_norm.0"))
    if has_them != tensors.has("fc_norm.0") or tensors.has(f"fc_norm.{taps}"):
        raise ValueError(f"fc_norm is {has_them}, and its tensors say otherwise")
    for tap in range(taps if has_them else 0):
        tensors.vector(f"fc_norm.{tap}.weight", width)
    return has_them
