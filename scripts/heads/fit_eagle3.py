"""Fit an EAGLE-3 head to the bundled model, and measure what it accepts.

Run: `python -m scripts.heads.fit_eagle3 HEAD.gguf`; an existing file is only measured.

The model answers prompts of the bench and requests about everyday topics; the head learns from the
inputs of three of its layers to say the token after the next one. Acceptance is measured on the
built-in prompts and on the same requests about other topics, none of which it has seen, with drafts
at every step whether they pay or not.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from app.bench.runner import SUITES, tasks
from backends import llamacpp
from backends.base import Context, Model
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from backends.llamacpp import LlamaContext, LlamaModel
from backends.llamacpp.heads.head import load_head
from backends.llamacpp.heads.opening import add_layer_states
from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.trees import DynamicTree
from decoding.estimation.cost import TreeSize
from decoding.events import Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from decoding.telemetry import Statistics
from models.stores.available_models import demo_path
from scripts.heads.eagle3_layer import (
    Array,
    Pass,
    Shape,
    Weights,
    backward,
    forward,
    guessed_back,
    guessed_states,
)
from scripts.prompts import tokenized

_TOPICS = (
    "the sea", "bread", "a lost key", "computers", "winter", "bees", "an old train", "music",
    "the moon", "a small village", "money", "sleep", "horses", "the first day at school", "rain",
    "paper", "a garden", "the human heart", "mountains", "a friendly robot",
)  # fmt: skip
_OTHER_TOPICS = ("a bicycle", "the weather")
_REQUESTS = (
    "Explain {} to a child.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "Write a polite letter to a friend about {}.",
    "What are the advantages and disadvantages of {}?",
    "Write a Python function about {}, with a docstring.",
    "Write a JavaScript function that prints a sentence about {} ten times.",
    "Translate into French: I have been thinking about {} all day.",
    "A book about {} costs 12 dollars. How much do seven of them cost? Explain step by step.",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt and its greedy reply. inputs: of layers, side by side, for all tokens but the last.

    first: number of tokens of the prompt.
    """

    tokens: NDArray[np.int32]
    first: int
    inputs: NDArray[np.float32]


def prompts(model: Model, count: int) -> list[list[int]]:
    """Tokens of up to count prompts: those of the bench, then requests about topics, mixed."""
    random = np.random.default_rng(0)
    made = [request.format(topic) for request, topic in product(_REQUESTS, _TOPICS)]
    texts = [task.text for task in tasks(SUITES["full"])]
    texts += [made[number] for number in random.permutation(len(made))]
    return _tokenized(model, texts[:count])


def similar_prompts(model: Model) -> list[list[int]]:
    """Tokens of the same requests about other topics."""
    pairs = product(_REQUESTS, _OTHER_TOPICS)
    return _tokenized(model, [request.format(topic) for request, topic in pairs])


def _tokenized(model: Model, texts: Sequence[str]) -> list[list[int]]:
    process = TemplateProcess()
    try:
        template = ChatTemplate(model.tokenizer, process)
        return [list(template.prompt([Message("user", text)]).tokens) for text in texts]
    finally:
        process.close()


def replies(
    model: LlamaModel, asked: Sequence[Sequence[int]], layers: Sequence[int], most: int, width: int
) -> Iterator[Reply]:
    """Let a model answer in up to most tokens each; width: of a layer's input."""
    context = model.open(max(map(len, asked)) + most + 1)
    assert isinstance(context, LlamaContext)
    limits = Limits(most, model.tokenizer.end_tokens)
    for prompt in asked:
        context.truncate(0)
        with ExitStack() as resources:
            states = add_layer_states(context, layers, width, resources)
            events = generate(context, prompt, SamplingSettings(temperature=0.0), limits)
            said = [token for event in events if isinstance(event, Step) for token in event.tokens]
            tokens = np.array([*prompt, *said], np.int32)
            yield Reply(tokens, len(prompt), states.rows(0, len(tokens) - 1))
    context.close()


_MATRICES = (
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
_FUSION, _OUTPUT_NORM = "fc", "output_norm"


@dataclass(frozen=True, slots=True)
class Source:
    """A model's weights that a head begins with. embeddings: of all tokens, (V, E)."""

    path: Path
    shape: Shape
    layers: int
    last: Weights
    output_norm: Array
    embeddings: Array
    output: Array

    @classmethod
    def of(cls, path: Path) -> "Source":
        """Read a llama."""
        reader = gguf.GGUFReader(path)

        def number(key: str, usual: float = 0.0) -> float:
            field = reader.get_field(f"llama.{key}")
            return usual if field is None else float(field.contents())

        stored = {tensor.name: tensor for tensor in reader.tensors}

        def values(name: str) -> Array:
            tensor = stored[f"{name}.weight"]
            return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

        layers = int(number("block_count"))
        names = (*_MATRICES, "attn_norm", "ffn_norm")
        embeddings = values("token_embd")
        return cls(
            path,
            Shape(
                int(number("attention.head_count")),
                int(number("attention.head_count_kv")),
                number("rope.freq_base", 10_000.0),
                number("attention.layer_norm_rms_epsilon"),
            ),
            layers,
            {name: values(f"blk.{layers - 1}.{name}") for name in names},
            values(_OUTPUT_NORM),
            embeddings,
            values("output") if "output.weight" in stored else embeddings,
        )

    @property
    def width(self) -> int:
        """Of the hidden states."""
        return self.embeddings.shape[1]


def write_head(
    path: Path, source: Source, weights: Weights, taps: tuple[int, ...], drafted: NDArray[np.int64]
) -> None:
    """Write a head without embeddings of its own; drafted: the tokens that it knows, in order."""
    writer = gguf.GGUFWriter(path, "eagle3")
    reader = gguf.GGUFReader(source.path)
    for name, entry in reader.fields.items():
        if name.startswith("tokenizer."):
            inner = entry.types[1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, entry.contents(), entry.types[0], inner)
    shape, width = source.shape, source.width
    size = len(weights["attn_q"]) // shape.heads
    writer.add_name(f"EAGLE-3 head for {source.path.stem}")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(len(weights["ffn_gate"]))
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.base)
    writer.add_rope_dimension_count(size)
    writer.add_array("eagle3.target_layers", list(taps))
    writer.add_uint32("eagle3.target_hidden_size", width)
    for name, values in weights.items():
        place = "" if name in (_FUSION, _OUTPUT_NORM) else "blk.0."
        writer.add_tensor(
            f"{place}{name}.weight", values.astype(np.float16 if values.ndim > 1 else np.float32)
        )
    writer.add_tensor("output.weight", source.output[drafted].astype(np.float16))
    writer.add_tensor("d2t", drafted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Fits a head to replies by gradient descent, in numpy.
#
# The training-time test of EAGLE-3 (arXiv 2503.01840, section 3.2), one step deep: each batch is
# run on the model's own states and once more on what the head made of them, so that it learns to
# go on from its own guesses. The first pass's keys and values count as given in the second.

_RATE, _WARM_UP = 1e-3, 20
"""Adam's step, and the number of steps until it is reached. Of three rates tried (docs)."""
_CLIP = 0.5
_FIRST, _SECOND = 0.9, 0.95
_GUESSED = 0.8
"""Weight of the second pass, as in EAGLE-3's code."""
_BATCH = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts of one length: inputs (B, T, 3E), embeddings of each next token (B, T, E).

    wanted: number, among the drafted ones, of the token after the next; -1 for none.
    """

    inputs: Array
    embedded: Array
    wanted: NDArray[np.int64]


def drafted_tokens(replies: Sequence[Reply], most: int, n_vocab: int) -> NDArray[np.int64]:
    """The commonest tokens of replies, and the first of the vocabulary, in order of their numbers.

    Vocabularies of byte pairs begin with the tokens that were commonest where they were made.
    """
    said = np.concatenate([reply.tokens[reply.first :] for reply in replies])
    counts = np.bincount(said, minlength=n_vocab)
    return np.sort(np.argsort(-counts, kind="stable")[:most]).astype(np.int64)


def spreads(replies: Sequence[Reply], width: int) -> Array:
    """Root mean square of each layer's input, without a prompt's first token, which is far off."""
    rows = np.vstack([reply.inputs[1:] for reply in replies])
    return np.sqrt((rows.reshape(len(rows), -1, width) ** 2).mean((0, 2)))


def first_weights(source: Source, spread: Array) -> Weights:
    """The last layer's weights, reading the last tap alone; embeddings count for nothing yet."""
    random = np.random.default_rng(0)
    width, last = source.width, source.last
    weights = {name: values.copy() for name, values in last.items()}
    weights["attn_norm_2"] = weights["attn_norm"]
    weights["attn_norm"] = np.ones(width, np.float32)
    for name in ("attn_q", "attn_k", "attn_v"):
        of_embedding = random.normal(0.0, 0.01, last[name].shape).astype(np.float32)
        weights[name] = np.hstack([of_embedding, last[name]])
    for name in ("attn_output", "ffn_down"):
        weights[name] = weights[name] / spread[-1]
    weights["output_norm"] = source.output_norm.copy()
    identity = np.eye(width, dtype=np.float32)
    weights["fc"] = np.hstack([*[np.zeros_like(identity)] * (len(spread) - 1), identity])
    return weights


def train(
    source: Source, replies: Sequence[Reply], drafted: NDArray[np.int64], epochs: int
) -> Iterator[tuple[float, Weights]]:
    """Fit; yields the mean loss of each epoch, and weights as a file has them."""
    spread = spreads(replies, source.width)
    weights = first_weights(source, spread)
    output = source.output[drafted]
    numbers = np.full(len(source.embeddings), -1, np.int64)
    numbers[drafted] = np.arange(len(drafted))
    random = np.random.default_rng(1)
    steps = epochs * -(-len(replies) // _BATCH)
    adam = Adam(weights, steps)
    for _ in range(epochs):
        losses: list[float] = []
        order: list[int] = random.permutation(len(replies)).tolist()
        for start in range(0, len(order), _BATCH):
            chosen = [replies[number] for number in order[start : start + _BATCH]]
            batch = _batch(chosen, source.embeddings, numbers, spread)
            loss, gradients = gradient(weights, source, output, batch)
            adam.step(gradients)
            losses.append(loss)
        yield float(np.mean(losses)), _for_file(weights, spread)


def gradient(
    weights: Weights, source: Source, output: Array, batch: Batch
) -> tuple[float, Weights]:
    """Cross-entropy of both passes, and the gradients of all weights."""
    shape = source.shape
    fused = batch.inputs @ weights["fc"].T
    first = forward(weights, shape, batch.embedded, fused)
    loss, wanted = _cross_entropy(first, output, batch.wanted, 1.0)
    second = forward(weights, shape, batch.embedded, guessed_states(first), first.cache)
    _, again = _cross_entropy(second, output, batch.wanted, _GUESSED)
    of_second, of_guessed = backward(weights, shape, second, again)
    gradients, of_fused = backward(weights, shape, first, wanted, guessed_back(of_guessed))
    for name, values in of_second.items():
        gradients[name] += values
    rows = of_fused.reshape(-1, of_fused.shape[-1])
    gradients["fc"] = rows.T @ batch.inputs.reshape(len(rows), -1)
    return loss, gradients


def _cross_entropy(
    of: Pass, output: Array, wanted: NDArray[np.int64], weight: float
) -> tuple[float, Array]:
    """Mean loss at the positions with a wanted token, and the gradient of the pass's output."""
    places = np.nonzero(wanted >= 0)
    logits = of.output[places] @ output.T
    logits -= logits.max(-1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(-1, keepdims=True)
    rows = np.arange(len(shares)), wanted[places]
    loss = float(-np.log(shares[rows] + 1e-30).mean())
    shares[rows] -= 1.0
    gradient = np.zeros_like(of.output)
    gradient[places] = shares @ output * np.float32(weight / len(shares))
    return loss, gradient


def _batch(
    replies: Sequence[Reply], embeddings: Array, numbers: NDArray[np.int64], spread: Array
) -> Batch:
    """Replies side by side, filled up to the longest one."""
    length = max(len(reply.tokens) for reply in replies) - 2
    width = embeddings.shape[1]
    inputs = np.zeros((len(replies), length, len(spread) * width), np.float32)
    embedded = np.zeros((len(replies), length, width), np.float32)
    wanted = np.full((len(replies), length), -1, np.int64)
    scale = np.repeat(spread, width)
    for place, reply in enumerate(replies):
        count = len(reply.tokens) - 2
        inputs[place, :count] = reply.inputs[:count] / scale
        embedded[place, :count] = embeddings[reply.tokens[1:-1]]
        wanted[place, :count] = numbers[reply.tokens[2:]]
        wanted[place, : max(reply.first - 2, 0)] = -1
    return Batch(inputs, embedded, wanted)


def _for_file(weights: Weights, spread: Array) -> Weights:
    """Weights that take inputs of layers as they are."""
    width = len(weights["output_norm"])
    return weights | {"fc": weights["fc"] / np.repeat(spread, width)}


class Adam:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980) on weights in place, with a cosine to 0."""

    def __init__(self, weights: Weights, steps: int) -> None:
        self._weights = weights
        self._steps = steps
        self._done = 0
        self._means = {name: np.zeros_like(values) for name, values in weights.items()}
        self._squares = {name: np.zeros_like(values) for name, values in weights.items()}

    def step(self, gradients: Weights) -> None:
        """Take one step; gradients that are too long together are shortened."""
        length = float(np.sqrt(sum(float((one * one).sum()) for one in gradients.values())))
        shortened = np.float32(min(1.0, _CLIP / max(length, 1e-12)))
        done = self._done + 1
        rate = _RATE * min(done / _WARM_UP, 0.5 + 0.5 * np.cos(np.pi * self._done / self._steps))
        root = np.sqrt(1.0 - _SECOND**done)
        for name, values in gradients.items():
            mean, square = self._means[name], self._squares[name]
            gradient = values * shortened
            mean += (1.0 - _FIRST) * (gradient - mean)
            square += (1.0 - _SECOND) * (gradient * gradient - square)
            change = mean / (np.sqrt(square) / root + 1e-8)
            self._weights[name] -= np.float32(rate / (1.0 - _FIRST**done)) * change
        self._done = done


TAPS = (2, 15, 28)
"""Layers whose inputs the head reads: after the first, in the middle, before the last."""

_N_CTX, _MEASURED = 1024, 64


def fit(
    model: LlamaModel, path: Path, *, count: int, most: int, epochs: int, vocabulary: int
) -> Iterator[str]:
    """Write a head for a model; yields what is done.

    count: prompts to be answered. most: tokens of a reply. vocabulary: tokens the head knows.
    """
    source = Source.of(model.info.path)
    started = time.perf_counter()
    asked = prompts(model, count)
    heard = list(replies(model, asked, TAPS, most, source.width))
    said = sum(len(reply.tokens) - reply.first for reply in heard)
    yield f"{len(heard)} replies, {said:,} tokens in {time.perf_counter() - started:.0f} s"
    drafted = drafted_tokens(heard, vocabulary, len(source.embeddings))
    started = time.perf_counter()
    for epoch, (loss, weights) in enumerate(train(source, heard, drafted, epochs), 1):
        yield f"epoch {epoch}: loss {loss:.3f} after {time.perf_counter() - started:.0f} s"
        if epoch == epochs:
            write_head(path, source, weights, TAPS, drafted)


def line(context: Context, n_vocab: int) -> Drafter:
    """Lines of four tokens."""
    return DraftModel("eagle3", context, n_vocab=n_vocab, max_draft=4)


def tree(context: Context, n_vocab: int) -> Drafter:
    """Trees of twelve tokens, four deep."""
    return DynamicTree("eagle3", context, TreeSize(4, 12), n_vocab=n_vocab)


def acceptance(
    model: LlamaModel,
    path: Path,
    make: Callable[[Context, int], Drafter],
    asked: Sequence[Sequence[int]],
    *,
    temperature: float = 0.0,
    most: int,
) -> Statistics:
    """What is accepted in replies of up to most tokens to these prompts."""
    context = model.open(_N_CTX)
    assert isinstance(context, LlamaContext)
    totals = Statistics(0.0)
    with closing(context), closing(load_head(path, model, context)) as head:
        drafter = make(head.open(_N_CTX), model.info.n_vocab)
        for seed, prompt in enumerate(asked):
            context.truncate(0)
            settings = SamplingSettings(temperature, seed=seed)
            limits = Limits(most, model.tokenizer.end_tokens)
            for event in generate(context, prompt, settings, limits, drafters=always(drafter)):
                totals.add(event)
    return totals


_DRAFTERS = {"line": line, "tree": tree}


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("head", type=Path)
    parser.add_argument("--prompts", type=int, default=204)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=8192)
    arguments = parser.parse_args()
    bundled = demo_path()
    assert bundled is not None
    with closing(llamacpp.load(bundled)) as model:
        if not arguments.head.exists():
            for told in fit(
                model,
                arguments.head,
                count=arguments.prompts,
                most=arguments.tokens,
                epochs=arguments.epochs,
                vocabulary=arguments.vocabulary,
            ):
                print(told, flush=True)
        print(f"{arguments.head.stat().st_size / 1e6:.1f} MB")
        asked = {
            "built-in": [prompt for _, prompt in tokenized(model)],
            "similar": similar_prompts(model),
        }
        for (name, make), kind, temperature in product(_DRAFTERS.items(), asked, (0.0, 0.8)):
            found = acceptance(
                model,
                arguments.head,
                make,
                asked[kind],
                temperature=temperature,
                most=_MEASURED,
            )
            print(f"{name}, {kind} prompts, temperature {temperature}: {_told(found)}", flush=True)


def _told(found: Statistics) -> str:
    shares = ", ".join(f"{share:.3f}" for share in found.accepted_by_position)
    per_step = found.tokens_per_step or 0.0
    return f"accepted by position {shares}; {per_step:.2f} tokens per step of {found.steps}"


if __name__ == "__main__":
    main()
