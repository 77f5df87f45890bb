"""What each layer of a GGUF model keeps: keys and values of every token, or a running state."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.base import ModelError, Rollback
from backends.files.gguf_header import GgufHeader

# Layers of a GGUF model that keep a running state, and its size in llama.cpp.
#
# A state of each such layer takes the place of keys and values of every token. Sizes follow
# llama_hparams::n_embd_r and n_embd_s of llama.cpp; all its numbers are 32-bit floats.

_FLOAT = 4
_MOST_LAYERS = 1 << 12

_RECURRENT = frozenset({"arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"})
"""Every layer keeps a state, and none has keys and values."""

_IN_ALL_LAYERS = "falcon-h1"
"""Every layer keeps a state beside its keys and values."""

_BY_INTERVAL = frozenset({"minimax-01", "qwen35", "qwen35moe", "qwen3next", "qwen4exp"})
_USUAL_INTERVAL = 4

_GEMMA3N_OWN = 20
"""Layers of Gemma 3n with keys and values of their own; the others read those."""

_BY_FEED_FORWARD = frozenset({"nemotron_h", "nemotron_h_moe"})
"""A layer is either attention, a state or feed-forward."""


def state_bytes(header: GgufHeader) -> int:
    """Bytes of one copy of a model's running state; 0 for a model without one."""
    count = sum(keeps_state(header))
    return _FLOAT * count * sum(_numbers(header)) if count else 0


def state_row(header: GgufHeader) -> int:
    """Numbers per token that a layer with a running state works on at once; 0 if there is none.

    Its convolution has its input, output and a copy of them in memory, beside a gate.
    """
    if not any(keeps_state(header)):
        return 0
    return 3 * _convolved(header) + header.integer("ssm.inner_size")


def keeps_state(header: GgufHeader) -> list[bool]:
    """Whether each layer keeps a running state, with those that predict further tokens."""
    count = min(max(header.integer("block_count"), 0), _MOST_LAYERS)
    architecture = header.architecture
    if architecture in _RECURRENT or architecture == _IN_ALL_LAYERS:
        return [True] * count
    if architecture in _BY_INTERVAL:
        return _by_interval(header, count)
    if not any(_numbers(header)):
        return [False] * count
    all_heads = header.by_layer("attention.head_count", count)
    heads = header.by_layer("attention.head_count_kv", count, all_heads)
    if architecture in _BY_FEED_FORWARD:
        widths = header.by_layer("feed_forward_length", count)
        trunk = count - header.integer("nextn_predict_layers")
        return [not (heads[layer] or widths[layer]) and layer < trunk for layer in range(count)]
    return [not number for number in heads]


def keeps_cache(header: GgufHeader) -> list[bool]:
    """Whether each layer of a model has keys and values in its cache.

    Layers for multi-token prediction keep theirs in a context of their own, except in some models
    with a running state. Layers that share another layer's cache have none.
    """
    states, architecture = keeps_state(header), header.architecture
    if architecture == _IN_ALL_LAYERS:
        return [True] * len(states)
    last = ahead = len(states)
    if architecture in _BY_INTERVAL or architecture == "glm5-next" or not any(states):
        last -= header.integer("nextn_predict_layers")
    if architecture == "gemma3n":
        ahead = _GEMMA3N_OWN
    elif architecture == "gemma4":
        ahead -= header.integer("attention.shared_kv_layers")
    end = min(last if last > 0 else ahead, ahead)  # a file of such layers alone has no others
    widths = header.by_layer("feed_forward_length", len(states))
    idle = [architecture in _BY_FEED_FORWARD and width > 0 for width in widths]
    return [not has and layer < end and not idle[layer] for layer, has in enumerate(states)]


def _by_interval(header: GgufHeader, count: int) -> list[bool]:
    """Every so many layers is attention, unless the file lists the others."""
    listed = header.integers("attention.recurrent_layers")
    if len(listed) >= count > 0:
        return [bool(one) for one in listed[:count]]
    interval = max(header.integer("full_attention_interval", _USUAL_INTERVAL), 1)
    trunk = count - header.integer("nextn_predict_layers")
    return [bool((layer + 1) % interval) and layer < trunk for layer in range(count)]


def _numbers(header: GgufHeader) -> tuple[int, int]:
    """Numbers of one layer's state: of its convolution, and of the rest."""
    width, kernel = header.integer("embedding_length"), header.integer("ssm.conv_kernel")
    if head := header.integer("wkv.head_size"):
        return header.integer("token_shift_count", 2) * width, width * head
    if length := header.integer("shortconv.l_cache"):
        return width * (length - 1), 0
    if head := header.integer("kda.head_dim"):
        key = "attention.head_count"
        heads = max([header.integer(key), *header.integers(key)])
        return 3 * (kernel - 1 if kernel else 3) * heads * head, head * head * heads
    if header.architecture == "minimax-01":
        heads = header.by_layer("attention.head_count", 1)[0]
        size = header.integer("embedding_length") // max(heads, 1)
        return 0, header.integer("attention.key_length", size) ** 2 * heads
    inner, state = header.integer("ssm.inner_size"), header.integer("ssm.state_size")
    return max(kernel - 1, 0) * _convolved(header), state * inner


def _convolved(header: GgufHeader) -> int:
    groups = header.integer("ssm.group_count") * header.integer("ssm.state_size")
    return header.integer("ssm.inner_size") + 2 * groups


_INDEXED = frozenset({"deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "qwen4exp"})
"""Architectures with sparse attention: an indexer keeps one more key of each token, by which a
layer selects the tokens that it attends to."""

_SHARED_INDEX = 1 << 20
"""Context from which GLM's layers share the choice of one in four, where the file lists none."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind. window: in tokens, None for full attention.

    index_size: numbers of a token beside its keys and values. has_state: whether they keep a
    running state.
    """

    count: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None
    index_size: int = 0
    has_state: bool = False

    @property
    def numbers_per_token(self) -> int:
        return self.count * (self.kv_heads * (self.key_size + self.value_size) + self.index_size)


@dataclass(frozen=True, slots=True)
class Attention:
    """All layers of a model; those of a GGUF file one by one, in their order.

    number_bytes: of a cached number; llama.cpp stores half floats unless told otherwise, MLX the
    model's own type.
    """

    layers: tuple[Layers, ...]
    number_bytes: float = 2

    @property
    def numbers_per_token(self) -> int:
        return sum(kind.numbers_per_token for kind in self.layers)

    @property
    def state_layers(self) -> int:
        return sum(kind.count for kind in self.layers if kind.has_state)

    def cache_bytes(self, n_ctx: int) -> int:
        """Bytes of a cache for n_ctx tokens.

        Sliding-window layers count in full: the engines keep the whole context, so that rejected
        tokens can be dropped.
        """
        return round(n_ctx * self.numbers_per_token * self.number_bytes)


def attention_of(header: GgufHeader) -> Attention:
    """What llama.cpp keeps of each layer of a GGUF model.

    Multi-head latent attention keeps keys alone: the values are part of them.
    Sources: load_hparams and create_memory of src/llama-model.cpp, src/llama-kv-cache.cpp.
    """
    count = _count(header)
    caches, states = keeps_cache(header), keeps_state(header)
    return _attention(header, caches, states, _index_sizes(header, count))


def head_attention(header: GgufHeader, n_layers: int) -> Attention:
    """What llama.cpp keeps of each layer of a head, the last layers of its GGUF file."""
    count = _count(header)
    own = [layer >= count - n_layers for layer in range(count)]
    return _attention(header, own, [False] * count, [0] * count)


def _count(header: GgufHeader) -> int:
    count = header.integer("block_count")
    if not 0 <= count <= _MOST_LAYERS:
        raise ModelError("the file is damaged", f"it has {count:,} layers")
    return count


def _attention(
    header: GgufHeader, caches: Sequence[bool], states: Sequence[bool], indices: Sequence[int]
) -> Attention:
    """Layers one by one: whether each has keys and values, and a state, and its index's numbers."""
    count = len(caches)
    heads = header.by_layer("attention.head_count", count)
    kv_heads = header.by_layer("attention.head_count_kv", count, heads)
    if header.architecture == "graniteswitch" and kv_heads:
        kv_heads[-1] += 1  # a layer of the engine's own, which chooses an adapter
    loops = max(header.integer("num_loops", 1), 1)  # Nanbeige runs its layers again
    full, windowed = _sizes(header, heads)
    window, pattern = header.integer("attention.sliding_window") or None, _windows(header, count)
    return Attention(
        tuple(
            Layers(
                1,
                kv_heads[layer] * loops if caches[layer] else 0,
                *(windowed if pattern[layer] else full),
                window if pattern[layer] else None,
                indices[layer] if caches[layer] else 0,
                states[layer],
            )
            for layer in range(count)
        )
    )


def _sizes(header: GgufHeader, heads: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    size = header.integer("embedding_length") // heads[0] if heads and heads[0] > 0 else 0
    key = header.integer("attention.key_length", size)
    value = header.integer("attention.value_length", size)
    key_swa = header.integer("attention.key_length_swa", key)
    value_swa = header.integer("attention.value_length_swa", value)
    mla = ("attention.key_length_mla", "attention.value_length_mla")
    has_values = not all(header.integer(one) for one in mla)
    return (key, value * has_values), (key_swa, value_swa * has_values)


def _windows(header: GgufHeader, count: int) -> list[bool]:
    """Whether each layer sees a window: as listed, or all but the last of so many."""
    listed = header.integers("attention.sliding_window_pattern")
    period = header.integer("attention.sliding_window_pattern")
    if not listed and period > 0:
        return [layer % period < period - 1 for layer in range(count)]
    return [bool(one) for one in (*listed, *[0] * count)][:count]


def _index_sizes(header: GgufHeader, count: int) -> list[int]:
    """Numbers that each layer's index keeps of a token."""
    size = header.integer("attention.indexer.key_length")
    if header.architecture == "minimax-m3":  # with values, which nothing reads
        dense = header.integer("leading_dense_block_count")
        (_, values), _ = _sizes(header, header.by_layer("attention.head_count", count))
        return [(size + values) * (layer >= dense) for layer in range(count)]
    if header.architecture not in _INDEXED or not header.integer("attention.indexer.top_k"):
        return [0] * count
    if header.integer("attention.indexer.kpool"):
        size *= 3  # a key, its gate, and what it is pooled into
    listed = header.integers("attention.indexer.types")
    if not listed and header.integer("context_length") >= _SHARED_INDEX:
        listed = [layer < 2 or layer % 4 == 2 for layer in range(count)]
    return [size * bool(one) for one in (*(listed or [1] * count), *[0] * count)][:count]


# How far llama.cpp takes a GGUF model's tokens back, and how many copies of its state that needs.
#
# The engine can keep a running state as it was before each of the last tokens of a pass: `n_rs_seq`
# copies beside the present one.

_BOUNDED = frozenset({"lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe"})
"""Architectures whose copies were compared with states computed anew, or that run the same code."""

_UNTRIED = frozenset({"bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "qwen4exp"})
"""Architectures for which llama.cpp keeps copies too, with code of their own."""

LONGEST = 7
"""Most copies: with the last token of the text, a pass over 8.

llama.cpp aborts where they take more operations than it plans for by a model's tensors. Of 64
layers, all but one with a state, LFM2 ran with up to 10 copies and aborted with 11; Nemotron-H ran
with 7 and aborted with 8 (llama-cpp-python 0.3.36).
"""

_SHORTEST = 3
"""Copies kept even where they are large: published gains of drafts are largest at 2 to 4 tokens
(models of 9B to 35B parameters). Not measured here."""

_SHARE = 16
"""Weights per byte of copies, beyond the shortest depth. A guess; not measured."""


def rollback_of(architecture: str, *, has_state: bool) -> Rollback:
    """How far contexts of a model can forget their last tokens."""
    if not has_state:
        return Rollback.ANY
    return Rollback.BOUNDED if architecture in _BOUNDED else Rollback.NONE


def refusal(architecture: str) -> str:
    """Why tokens of a model with a running state are not taken back, after the model's name."""
    if architecture in _UNTRIED:
        why = f"which specchat has not tried to take back for the architecture {architecture}"
    else:
        why = f"which llama.cpp cannot take back for the architecture {architecture}"
    return f"keeps a running state, {why}: it cannot forget rejected tokens"


def usual_depth(header: GgufHeader, weight_bytes: int) -> int:
    """Copies of the running state kept beside the present one, where memory is not short."""
    has_state = any(keeps_state(header))
    if rollback_of(header.architecture, has_state=has_state) is not Rollback.BOUNDED:
        return 0
    affordable = weight_bytes // _SHARE // max(state_bytes(header), 1)
    return min(max(affordable, _SHORTEST), LONGEST)
