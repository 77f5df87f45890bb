"""Memory needed to run a model, estimated before loading from its files or the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from backends.base import CacheType, ModelError, SpecchatError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.files.attention import (
    Attention,
    Layers,
    attention_of,
    keeps_state,
    state_row,
    usual_depth,
)
from backends.files.attention import state_bytes as state_bytes_of_file
from backends.files.gguf_header import GgufHeader, Tensor, read_header, read_model, read_per_token
from backends.files.mlx_folder import COPIES, MlxFolder, count_layers, read_mlx_folder, state_bytes
from backends.files.mlx_gguf import read_settings
from models.byte_sizes import gigabytes
from models.catalogue import Entry
from models.metadata.identity import projector_beside

_PATCHES = 4096
"""Of images that may have any size: four to a token, of at most 1,024."""

_SCANNING = frozenset({
    "bailingmoe3", "deepseek4", "hy_v4", "kimi-linear", "minimax-01", "minimax-m3", "nanbeige",
    "qwen35", "qwen35moe", "qwen3next", "qwen4exp",
})  # fmt: skip
"""Architectures whose graphs have more operations the more tokens a pass has."""


@dataclass(frozen=True, slots=True)
class GraphSize:
    """Operations of a graph: so many for each token of the longest pass, but least in any case."""

    least: int = 0
    per_token: int = 0

    def operations(self, most_tokens: int) -> int:
        return max(self.least, self.per_token * most_tokens)


NO_GRAPH = GraphSize()


def graph_size(header: GgufHeader, n_tensors: int) -> GraphSize:
    """Size of the graphs of a GGUF model, which has n_tensors in all its files.

    (graph_max_nodes of src/llama-context.cpp.)
    """
    if header.architecture in _SCANNING:
        return GraphSize(32 * n_tensors, 40)
    return GraphSize(max(1024, 8 * n_tensors))


def mlx_settings(path: Path) -> MlxFolder:
    return read_mlx_folder(path) if path.is_dir() else read_settings(path)


CHUNK = 256
"""Most tokens of a pass, in any backend, of a model in memory."""

LOGIT_ROWS = 63
"""Most rows of logits of a pass of llama.cpp; of MLX one more."""

_TOKEN, _BPE_TOKEN = 180, 380
"""Bytes per token of a vocabulary: llama.cpp took 177 of a SentencePiece one of 32,000 tokens, and
378 of the bundled model's with its merges (llama-cpp-python 0.3.36, Linux)."""

_UNKNOWN_WIDTH = 4096

_WITHOUT_LATENT = frozenset({"deepseek_v2", "minicpm3"})
"""Models with MLA of which mlx-lm 0.32.2 caches every head's keys and values."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Dimensions of a model; weight_bytes in bytes, context_limit in tokens; 0 if unknown."""

    weight_bytes: int
    n_vocab: int
    width: int
    feed_forward: int
    """Most numbers of a token between the two products of a layer: of all its experts together."""
    context_limit: int
    attention: Attention
    n_layers: int = 0
    """All layers, including those without attention."""
    state_bytes: int = 0
    """Running state with its usual copies."""
    state_row: int = 0
    """Numbers per token that such a layer works on at once."""
    active_experts: int | None = None
    """Experts used per token, 0 in a model without experts, None if unknown."""
    row_bytes: int = 0
    """Bytes that a pass of its model leaves of each token for a head; 0 for a model."""
    most_rows: int | None = None
    """Tokens of which these are kept, at most; None for the whole context."""
    output_rows: int = 0
    """Rows of logits that the engine keeps of a pass, apart from those it computes."""
    own_vocab: int = 0
    """Tokens that a head knows, where these are fewer than the model has; else 0."""
    vocabulary_bytes: int = 0
    """What the engine makes of its file's vocabulary."""
    graph: GraphSize = NO_GRAPH
    """Graphs that the engine keeps; empty if it keeps none."""
    most_tokens: int = CHUNK
    """Most tokens of a pass."""
    projector_bytes: int = 0
    """Of a projector for images beside a model, and of encoding one."""
    read_bytes: int = 0
    """Weights that a plain token reads, of experts the active ones; 0 if unknown."""

    def kept_bytes(self, n_ctx: int) -> int:
        """Bytes kept for a head of what passes left, in a context of n_ctx tokens."""
        rows = n_ctx if self.most_rows is None else min(self.most_rows, n_ctx)
        return rows * self.row_bytes

    def layer_bytes(self, n_ctx: int) -> list[int]:
        """Bytes that a context of n_ctx tokens keeps of each layer: keys, values, running state."""
        attention = self.attention
        state = self.state_bytes // max(attention.state_layers, 1)
        kept: list[int] = []
        for kind in attention.layers:
            numbers = n_ctx * kind.numbers_per_token // max(kind.count, 1)
            size = round(numbers * attention.number_bytes) + state * kind.has_state
            kept += [size] * kind.count
        return kept

    def with_cache(self, cache_type: CacheType | None) -> "ModelFacts":
        """The same model with a KV cache of another type; None for the engine's own."""
        if cache_type is None:
            return self
        attention = replace(self.attention, number_bytes=cache_type.number_bytes)
        return replace(self, attention=attention)


def facts_of(path: Path, backend: str = LLAMACPP) -> ModelFacts:
    """Read a GGUF file with all its parts, or an MLX folder.

    backend: the one that will run it; they store a GGUF file and its cache in different types.

    Raises:
        ModelError: it is missing, damaged, inconsistent, or not for this backend.
    """
    is_for_mlx = path.is_dir() or backend == MLX
    facts = _of_folder(mlx_settings(path)) if is_for_mlx else _of_file(*read_model(path))
    figures = [facts.width, facts.feed_forward, facts.n_vocab, facts.context_limit]
    figures += [facts.state_bytes, facts.state_row]
    for kind in facts.attention.layers:
        figures += [kind.kv_heads, kind.key_size, kind.value_size, kind.window or 0]
    if min(figures) < 0:
        raise ModelError(f"{path} is damaged", "it has negative dimensions")
    return facts


def facts_of_target(path: Path, backend: str = LLAMACPP) -> ModelFacts:
    """As facts_of, with the projector that is loaded beside a model of llama.cpp, if there is one.

    Encoding takes a row of the feed-forward and four of the projector's width for each patch:
    llama.cpp reported 0.92 (1,024 patches) and 0.83 of it (4,096; processor only).
    """
    facts, projector = facts_of(path, backend), None if backend == MLX else projector_beside(path)
    if projector is None:
        return facts
    try:
        vision, size = read_header(projector), projector.stat().st_size
    except (OSError, SpecchatError):  # the model is loaded without it
        return facts
    patches = (
        vision.integer("vision.image_size") // max(vision.integer("vision.patch_size"), 1)
    ) ** 2
    if str(vision.metadata.get("clip.projector_type")).startswith("qwen"):
        patches = max(patches, _PATCHES)
    row = vision.integer("vision.feed_forward_length")
    row += 4 * vision.integer("vision.embedding_length")
    return replace(facts, projector_bytes=size + _FLOAT * patches * row)


def facts_of_entry(entry: Entry, quantization: str) -> ModelFacts | None:
    size = entry.size(quantization)
    if size is None or entry.attention is None:
        return None
    return ModelFacts(
        size.bytes, 0, _UNKNOWN_WIDTH, 4 * _UNKNOWN_WIDTH, entry.context, entry.attention
    )


def _of_file(header: GgufHeader, tensors: Sequence[Tensor]) -> ModelFacts:
    width = header.integer("embedding_length")
    weight_bytes = sum(tensor.stored_bytes for tensor in tensors)
    depth = usual_depth(header, weight_bytes)
    feed_forward = max(
        header.integer("feed_forward_length"), *header.integers("feed_forward_length"), 0
    )
    expert = header.integer("expert_feed_forward_length") or feed_forward
    return ModelFacts(
        weight_bytes=weight_bytes,
        n_vocab=header.n_vocab or header.integer("vocab_size"),
        width=width,
        feed_forward=max(feed_forward, header.integer("expert_used_count") * expert),
        context_limit=header.integer("context_length"),
        attention=attention_of(header),
        n_layers=header.integer("block_count"),
        state_bytes=(1 + depth) * state_bytes_of_file(header),
        state_row=state_row(header),
        active_experts=header.integer("expert_used_count"),
        # Of all branches of a tree, or of the longest line it verifies.
        output_rows=1 + depth if any(keeps_state(header)) else LOGIT_ROWS,
        vocabulary_bytes=vocabulary_bytes(header),
        graph=graph_size(header, len(tensors)),
        read_bytes=read_per_token(header, tensors),
    )


def vocabulary_bytes(header: GgufHeader) -> int:
    has_merges = header.metadata.get("tokenizer.ggml.model") == "gpt2"
    return header.n_vocab * (_BPE_TOKEN if has_merges else _TOKEN)


def _of_folder(folder: MlxFolder) -> ModelFacts:
    width, count = folder.count("hidden_size"), folder.count("num_hidden_layers")
    layers = count_layers(folder)
    n_heads = folder.count("num_attention_heads")
    size = folder.count("head_dim") or (width // n_heads if n_heads else 0)
    kv_heads = folder.count("num_key_value_heads", n_heads)
    full_heads = folder.count("num_global_key_value_heads") or kv_heads
    full_size = folder.count("global_head_dim") or size
    full = Layers(layers.full, full_heads, full_size, full_size)
    latent = folder.count("kv_lora_rank")
    if latent and folder.config.get("model_type") not in _WITHOUT_LATENT:
        full = Layers(layers.full, 1, latent, folder.count("qk_rope_head_dim"))
    window = folder.count("sliding_window") or None
    windowed = Layers(layers.window, kv_heads, size, size, window)
    with_state = Layers(layers.state, 0, 0, 0, has_state=True)
    return ModelFacts(
        weight_bytes=folder.weight_bytes,
        n_vocab=folder.count("vocab_size"),
        width=width,
        feed_forward=folder.count("intermediate_size"),
        context_limit=folder.count("max_position_embeddings"),
        attention=Attention(
            tuple(kind for kind in (full, windowed, with_state) if kind.count),
            folder.number_bytes,
        ),
        n_layers=count,
        state_bytes=COPIES * state_bytes(folder),
        active_experts=folder.active_experts,
        read_bytes=folder.read_bytes,
    )


_HALF, _FLOAT = 2, 4
_OPERATION_BYTES, _GRAPHS = 420, 3
"""Bytes of an operation in a graph (ggml_tensor_overhead and its part of ggml_graph_overhead), and
graphs that a context keeps: for the most tokens, and the last two."""

_TIGHT = 0.9


class Fit(StrEnum):
    """Whether a bill fits into free memory; tight: over nine tenths of it.

    streams: too big, but it can be read from disk in every pass.
    """

    FITS = "fits"
    TIGHT = "tight"
    TOO_BIG = "too big"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class MemoryBill:
    weights: int
    cache: int
    compute: int
    state: int = 0
    """Running state, with the copies that it goes back to."""
    images: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.state + self.compute + self.images

    @property
    def words(self) -> str:
        parts = {
            "weights": self.weights,
            "context": self.cache + self.state,
            "working memory": self.compute,
            "images": self.images,
        }
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items() if size)


def bill(facts: ModelFacts, n_ctx: int) -> MemoryBill:
    """Bill of a model, or of a drafter, with a context of n_ctx tokens.

    With weights it was 0.990 to 1.020 of what a process took, without 0.949 to 1.092: models of
    width 1,024 with 32,000 tokens in half floats, dense, with an EAGLE-3 head, a DFlash head, an
    assistant, and with copies of a running state and a next-token layer; 2,048 tokens read
    (scripts.measure_memory; llama-cpp-python 0.3.36, processor only, Linux). Not in it are
    notes that llama.cpp takes of each line of a tree: 12 MB for 64 lines after 4,096 tokens.
    """
    tokens = facts.most_tokens
    return MemoryBill(
        weights=facts.weight_bytes,
        cache=facts.attention.cache_bytes(n_ctx) + facts.kept_bytes(n_ctx),
        compute=compute_bytes(facts, n_ctx, tokens) + host_bytes(facts, n_ctx, tokens),
        state=facts.state_bytes,
        images=facts.projector_bytes,
    )


def host_bytes(facts: ModelFacts, n_ctx: int, most_tokens: int = CHUNK) -> int:
    """What llama.cpp takes of the machine's memory beside the compute buffer, which may be a GPU's.

    Rows of logits that are kept (output_reserve of src/llama-context.cpp); for a head what a pass
    of its model leaves, in the compute buffer and copied out of it; three graphs of a pass; inputs
    of a product in the type of its weights; the vocabulary. Nothing for models of other engines.
    """
    logits = _FLOAT * facts.n_vocab * min(facts.output_rows, n_ctx)
    rows = 2 * facts.row_bytes * min(CHUNK, n_ctx)
    tokens = min(most_tokens, n_ctx)
    operations = facts.graph.operations(tokens)
    graphs = _GRAPHS * _OPERATION_BYTES * operations
    inputs = _HALF * tokens * max(facts.feed_forward, facts.width)
    return logits + rows + graphs + facts.vocabulary_bytes + (inputs if operations else 0)


def compute_bytes(facts: ModelFacts, n_ctx: int, most_tokens: int = CHUNK) -> int:
    """Upper bound of llama.cpp's usual compute buffer, in bytes. most_tokens: of a pass.

    Sums the attention mask in half floats (two with a window), all copies of a layer's running
    state, and the larger one of the activations of a pass (per token three feed-forward rows, or a
    row of a layer with a running state, and four of the model's width, with experts seven) and the
    rows of logits after it, which take the same memory. llama.cpp reported 0.80 to 0.99 of it for
    the bundled model with contexts of 512 to 8,192, and 0.92 to 1.00 for models of width 1,024 and
    32,000 tokens, with a running state or without (llama-cpp-python 0.3.36, processor only). It is
    too low without flash attention (Grok, T5) and for indexers (DeepSeek 3.2, GLM 5, MiniMax M3).
    """
    chunk = min(most_tokens, n_ctx)
    outputs = min(LOGIT_ROWS + 1, chunk)  # with what is aligned; MLX computes as many
    logits = outputs * (facts.n_vocab + facts.own_vocab + facts.width) + chunk * facts.width
    widest = max(3 * facts.feed_forward, facts.state_row)
    rows = chunk * (widest + (7 if facts.active_experts else 4) * facts.width)
    masks = 1 + any(kind.window for kind in facts.attention.layers)
    held = facts.state_bytes // max(facts.attention.state_layers, 1)
    return _FLOAT * max(rows, logits) + masks * _HALF * chunk * n_ctx + held


def fit(needed: int, free: int) -> Fit:
    if needed > free:
        return Fit.TOO_BIG
    return Fit.TIGHT if needed > _TIGHT * free else Fit.FITS
