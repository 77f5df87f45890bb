"""Models loaded by llama.cpp."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llama_cpp import llama_cpp as api

from backends.base import (
    NO_COPIES,
    CacheType,
    Context,
    ContextTooLargeError,
    ModelError,
    ModelInfo,
    OutOfMemoryError,
    Rollback,
    SpecchatError,
    UsageError,
    check_context,
)
from backends.files.attention import attention_of, refusal, rollback_of, state_bytes, usual_depth
from backends.files.gguf_header import GgufHeader, Tensor, read_per_token
from backends.hardware.host import available_memory
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.library import GGML_TYPES
from backends.llamacpp.pass_callbacks import ChosenExperts
from backends.llamacpp.rpc import Peers
from backends.llamacpp.running_state import RunningState
from backends.llamacpp.sequences import MAX_LOGITS, Cells
from backends.llamacpp.tokenizer import LlamaTokenizer
from backends.llamacpp.vision import MOST_TOKENS, Vision
from backends.streaming.streamed_weights import StreamedWeights

_CHECKPOINTS_SHARE = 16
"""Free bytes per byte of checkpoints of a running state. A guess; not measured."""

_NO_ROOM = "keeps a running state, and there is no memory for copies of it to go back to"
_SMALL_MODEL_BYTES = 1 << 30


_FLOAT_BYTES = 4


class LlamaModel:
    def __init__(
        self,
        pointer: api.llama_model_p,
        path: Path,
        header: GgufHeader,
        tensors: Sequence[Tensor],
        *,
        threads: int,
        offloaded: bool,
        gpu_layers: int | None = None,
        variant: str = "",
        weights: StreamedWeights | None = None,
        cache_type: CacheType = CacheType.F16,
        is_beside: bool = False,
        has_own_head: bool = False,
        projector: Path | SpecchatError | None = None,
        peers: Peers | None = None,
    ) -> None:
        """Take over loaded weights; tensors: of all parts of the file.

        offloaded: whether layers may be on a GPU. weights: that are read from disk in part.
        is_beside: whether they are another model's too. has_own_head: whether its own next-token
        layers are loaded. projector: for images; or why there is none; one that cannot be used is
        told in info. peers: with layers of it.
        """
        self._peers = peers
        self.has_own_head = has_own_head
        self.is_offloaded = offloaded
        self.streamed_weights = weights
        self._pointer: api.llama_model_p | None = pointer
        self._is_beside = is_beside
        self._contexts: set[LlamaContext] = set()
        self._cache_type = cache_type
        self.tokenizer = LlamaTokenizer(pointer, chat_template(pointer))
        numbers_per_token = attention_of(header).numbers_per_token
        self._kv_bytes_per_token = round(numbers_per_token * cache_type.number_bytes)
        self._state_bytes = state_bytes(header)
        """Of one copy of the running state, 0 without one."""
        self._usual_depth = usual_depth(header, sum(tensor.stored_bytes for tensor in tensors))
        width, wide = header.integer("embedding_length"), header.integer("feed_forward_length")
        self._activations = 4 * width + 3 * wide
        """Numbers of a token that a pass holds at once, at most."""
        share, kind = header.expert_share, rollback(pointer, header.architecture)
        all_layers = header.integer("block_count")  # with those that predict ahead
        is_split = offloaded and gpu_layers is not None and gpu_layers <= all_layers
        self.info = ModelInfo(
            path=path,
            name=path.stem,
            architecture=header.architecture,
            quantization=_quantization(pointer),
            parameters=api.llama_model_n_params(pointer),
            weight_bytes=api.llama_model_size(pointer),
            bytes_read_per_token=read_per_token(header, tensors),
            n_vocab=self.tokenizer.n_vocab,
            n_layers=api.llama_model_n_layer(pointer),
            context_limit=api.llama_model_n_ctx_train(pointer),
            active_experts=header.integer("expert_used_count"),
            expert_share=share if share < 1.0 else 0.0,
            rollback=kind,
            rollback_refusal="" if kind is Rollback.ANY else refusal(header.architecture),
            backend="llamacpp",
            engine=library.build(),
            device=library.device(gpu_layers, peers.names if peers else ()),
            threads=threads,
            variant=variant,
            gpu_layers=gpu_layers if is_split else None,
            cache_type=cache_type,
        )
        if projector is not None:
            self._add_vision(projector)
        self._tell_of_weights()

    def _add_vision(self, projector: Path | SpecchatError) -> None:
        tokenizer, info = self.tokenizer, self.info
        try:
            if isinstance(projector, SpecchatError):
                raise projector
            tokenizer.vision = Vision(
                self.pointer,
                projector,
                threads=info.threads,
                offloaded=self.is_offloaded and library.can_offload(),
            )
            tokenizer.image_refusal = ""
        except SpecchatError as error:
            tokenizer.image_refusal = error.summary
        self.info = replace(info, image_refusal=tokenizer.image_refusal)

    def _tell_of_weights(self) -> None:
        if (weights := self.streamed_weights) is not None:
            self.info = replace(
                self.info,
                locked_bytes=weights.locked_bytes,
                streamed_bytes_per_token=weights.read_bytes_per_token(
                    self.info.expert_share or 1.0
                ),
                lock_refusal=weights.refusal,
            )

    @property
    def pointer(self) -> api.llama_model_p:
        assert self._pointer is not None, "the model is closed"
        return self._pointer

    @property
    def shortage(self) -> str:
        return self.streamed_weights.shortage if self.streamed_weights else ""

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> Context:
        """Open an empty context, with cells for so many sequences where they can share them.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
            UsageError: the engine has no such cache.
        """
        info, model = self.info, self.pointer
        check_context(info.name, n_ctx, info.context_limit)
        n_chunk = self._chunk_size(n_ctx)
        vision, most = self.tokenizer.vision, n_chunk
        if vision is not None and vision.is_whole:
            most = max(n_chunk, min(MOST_TOKENS, n_ctx))
        n_cells = n_ctx * sequences if info.rollback is Rollback.ANY else n_ctx
        depth = self._depth(n_cells, n_chunk, most)
        parameters = api.llama_context_default_params()
        parameters.n_ctx = n_cells
        parameters.n_batch = parameters.n_ubatch = most
        parameters.n_outputs_max = min(MAX_LOGITS, n_chunk)
        if info.rollback is Rollback.ANY:  # one sequence per branch of a tree, in one cache
            parameters.n_seq_max = parameters.n_outputs_max
            parameters.kv_unified = True
        parameters.type_k = parameters.type_v = GGML_TYPES[self._cache_type]
        parameters.n_threads = parameters.n_threads_batch = info.threads
        parameters.no_perf = True
        weights, choices = self.streamed_weights, None
        if weights is not None and weights.reads_experts:
            choices = ChosenExperts.of(info.active_experts, weights.choose)
        if choices is not None:
            parameters.cb_eval = choices.callback
        parameters.n_rs_seq = depth if drafts else 0
        library.forget_log()
        pointer = api.llama_init_from_model(model, parameters)
        while pointer is None and parameters.n_rs_seq:  # a GPU reports a shortage only now
            parameters.n_rs_seq //= 2
            pointer = api.llama_init_from_model(model, parameters)
        if pointer is None:
            raise (self._peers.error if self._peers else None) or self._open_error(n_cells)
        memory = api.llama_get_memory(pointer)
        if memory is None:
            api.llama_free(pointer)
            raise ModelError(
                f"{info.name} cannot chat", "it encodes texts and cannot generate them"
            )
        state = None
        if info.rollback is not Rollback.ANY:
            most_bytes = available_memory() // _CHECKPOINTS_SHARE
            state = RunningState(pointer, memory, api.llama_n_rs_seq(pointer), most_bytes)
        cells = Cells(
            pointer,
            memory,
            n_ctx=n_ctx,
            n_cells=n_cells,
            n_chunk=n_chunk,
            n_vocab=info.n_vocab,
            kv_bytes_per_token=self._kv_bytes_per_token,
            weights=weights,
            choices=choices,
            is_on_processor=not self.is_offloaded,
            peers=self._peers,
        )
        context = LlamaContext(
            cells,
            state=state,
            state_bytes=self._state_bytes,
            draft_refusal=_draft_refusal(info, state, drafts=drafts),
            on_close=self._contexts.discard,
            has_window=api.llama_model_n_swa(model) > 0,
            vision=vision,
        )
        self._contexts.add(context)
        return context

    def _open_error(self, n_ctx: int) -> SpecchatError:
        """Error for a context that llama.cpp did not open, with the engine's reason."""
        reason = library.last_reason()
        # A block size that does not divide the heads, or flash attention that a model lacks.
        if "cache type" in reason or "V cache" in reason:
            what = f"{self.info.name} cannot run with --kv {self._cache_type}"
            return UsageError(what, reason.partition(": ")[2], "Use --kv f16.")
        what = f"cannot open a context of {n_ctx:,} tokens"
        return OutOfMemoryError(what, reason, "Use a smaller --ctx.")

    def hold(self, lock_bytes: int) -> None:
        assert self.streamed_weights is not None, "the model is in memory"
        self.streamed_weights.hold(lock_bytes)
        self._tell_of_weights()

    def _chunk_size(self, n_ctx: int) -> int:
        """Tokens of a prefill pass: few for slow models, so that stopping is quick.

        Streamed weights are read once for each, and its passes stop in between.

        It depends on the model, never on timing, so that a prompt is always split alike.
        """
        if self.streamed_weights is not None:
            return min(self.streamed_weights.chunk, n_ctx)
        small = self.is_offloaded or self.info.weight_bytes < _SMALL_MODEL_BYTES
        return min(256 if small else 64, n_ctx)

    def _depth(self, n_ctx: int, n_chunk: int, most: int) -> int:
        """Copies of a running state to keep beside the present one; 0 without one.

        A context takes its cache, logits and the activations of a pass. Logits are computed in one
        buffer and kept in another. At 512 tokens, llama.cpp took 25 MiB beside the cache of the
        bundled model with passes of 256 tokens (31 counted here), and 42 of a 1.1B body with 512
        (59 counted). most: tokens of a pass over an image.

        Raises:
            ContextTooLargeError: the context does not fit without any.
        """
        depth = min(self._usual_depth, max(n_chunk - 2, 0))  # else the engine aborts
        if self.is_offloaded:
            return depth
        numbers = 2 * min(MAX_LOGITS, n_chunk) * self.info.n_vocab + most * self._activations
        beside, per_token = _FLOAT_BYTES * numbers + self._state_bytes, self._kv_bytes_per_token
        needed, free = n_ctx * per_token + beside, available_memory()
        if needed > free:
            raise ContextTooLargeError(n_ctx, needed, free, (free - beside) // max(per_token, 1))
        return min(depth, (free - needed) // max(self._state_bytes, 1))

    def close(self) -> None:
        if self._pointer is None:
            return
        for context in list(self._contexts):
            context.close()
        if self.tokenizer.vision is not None:
            self.tokenizer.vision.close()
        weights = self.streamed_weights
        if weights is not None:
            weights.settle()
        api.llama_model_free(self._pointer)
        self._pointer = None
        if weights is not None and self._is_beside:
            weights.follow()  # without what this model had mapped
        elif weights is not None:
            weights.close()
        if self._peers is not None:
            self._peers.close()


def _draft_refusal(info: ModelInfo, state: RunningState | None, *, drafts: bool) -> str:
    if state is None or state.depth:
        return ""
    if info.rollback is Rollback.NONE:
        return info.rollback_refusal
    return _NO_ROOM if drafts else NO_COPIES


def chat_template(pointer: api.llama_model_p) -> str | None:
    template = api.llama_model_chat_template(pointer, None)
    return template.decode(errors="replace") if template else None


def rollback(pointer: api.llama_model_p, architecture: str) -> Rollback:
    """How far contexts of a model can forget their last tokens."""
    has_state = api.llama_model_is_recurrent(pointer) or api.llama_model_is_hybrid(pointer)
    return rollback_of(architecture, has_state=has_state)


def _quantization(pointer: api.llama_model_p) -> str:
    """Quantization, such as Q4_1, from a description such as 'llama 135M Q4_1'."""
    buffer = bytes(256)
    size = api.llama_model_desc(pointer, buffer, len(buffer))
    words = buffer[: max(size, 0)].decode(errors="replace")
    match = re.search(r"\b(?:I?Q\d\w*|B?F16|F32|MXFP4\w*|TQ\d\w*|NVFP4)\b", words)
    return match.group() if match else words
