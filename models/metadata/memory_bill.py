"""Memory needed to run a model, estimated before loading."""

from dataclasses import dataclass
from enum import StrEnum

from models.byte_sizes import gigabytes
from models.metadata.model_facts import CHUNK, LOGIT_ROWS, ModelFacts

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
    """Bytes by purpose."""

    weights: int
    cache: int
    compute: int
    drafter: int = 0
    """Weights, cache, running state and compute buffer of a drafter."""
    state: int = 0
    """Running state, with the copies that it goes back to."""

    @property
    def total(self) -> int:
        """Sum of all items."""
        return self.weights + self.cache + self.state + self.compute + self.drafter

    @property
    def words(self) -> str:
        """Items of the bill in words."""
        parts = {
            "weights": self.weights,
            "context": self.cache + self.state,
            "working memory": self.compute,
            "drafter": self.drafter,
        }
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in parts.items() if size)


def bill(facts: ModelFacts, n_ctx: int, drafter: MemoryBill | None = None) -> MemoryBill:
    """Bill of a model with a context of n_ctx tokens, plus a drafter's bill.

    With weights it was 0.990 to 1.020 of what a process took, without 0.949 to 1.092: models of
    width 1,024 with 32,000 tokens in half floats, dense, with an EAGLE-3 head, a DFlash head, an
    assistant, and with copies of a running state and a next-token layer; 2,048 tokens read
    (scripts.heads.measure_memory; llama-cpp-python 0.3.36, processor only, Linux). Not in it are
    notes that llama.cpp takes of each line of a tree: 12 MB for 64 lines after 4,096 tokens.
    """
    tokens = facts.most_tokens
    return MemoryBill(
        weights=facts.weight_bytes,
        cache=facts.attention.cache_bytes(n_ctx) + facts.kept_bytes(n_ctx),
        compute=compute_bytes(facts, n_ctx, tokens) + host_bytes(facts, n_ctx, tokens),
        drafter=drafter.total if drafter else 0,
        state=facts.state_bytes,
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
    """Compare needed and free bytes."""
    if needed > free:
        return Fit.TOO_BIG
    return Fit.TIGHT if needed > _TIGHT * free else Fit.FITS
