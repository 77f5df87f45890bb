"""Layers of a GGUF model that keep a running state, and its size in llama.cpp.

A state of each such layer takes the place of keys and values of every token. Sizes follow
llama_hparams::n_embd_r and n_embd_s of llama.cpp; all its numbers are 32-bit floats.
"""

from backends.files.gguf_header import GgufHeader

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

    Layers that predict further tokens have theirs in another context, but for those of some models
    with a running state; some layers read those of others.
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
        heads = max([header.integer("attention.head_count"), *_heads(header)])
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


def _heads(header: GgufHeader) -> tuple[int, ...]:
    return header.integers("attention.head_count")
