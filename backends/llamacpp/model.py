"""Models loaded by llama.cpp."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llama_cpp import llama_cpp as api

from backends.base import (
    NO_COPIES,
    CacheType,
    Context,
    ModelError,
    ModelInfo,
    OutOfMemoryError,
    Rollback,
    SpecchatError,
    UsageError,
)
from backends.files.gguf_header import GgufHeader, Tensor
from backends.hardware.host import available_memory
from backends.llamacpp import library
from backends.llamacpp import library as gpu_devices
from backends.llamacpp.context import MAX_LOGITS, LlamaContext
from backends.llamacpp.model_facts import (
    GGML_TYPES,
    ContextSizes,
    describe,
    held,
    is_against_cache_type,
)
from backends.llamacpp.pass_callbacks import ChosenExperts
from backends.llamacpp.running_state import RunningState
from backends.llamacpp.tokenizer import LlamaTokenizer
from backends.streaming.streamed_weights import StreamedWeights

_CHECKPOINTS_SHARE = 16
"""Free bytes per byte of checkpoints of a running state. A guess; not measured."""

_NO_ROOM = "keeps a running state, and there is no memory for copies of it to go back to"
_ONE_LINE = "keeps a running state, which cannot follow several branches"
_SMALL_MODEL_BYTES = 1 << 30


class LlamaModel:
    """Loaded weights and their open contexts."""

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
    ) -> None:
        """Take over loaded weights.

        is_beside: those that are streamed are another model's too. has_own_head: as the property.
        """
        self.has_own_head = has_own_head
        """Whether its own next-token layers are loaded."""
        self._pointer: api.llama_model_p | None = pointer
        self._weights = weights
        self._is_beside = is_beside
        self._contexts: set[LlamaContext] = set()
        self._offloaded = offloaded
        self._cache_type = cache_type
        template = api.llama_model_chat_template(pointer, None)
        self.tokenizer = LlamaTokenizer(
            pointer, template.decode(errors="replace") if template else None
        )
        self.info = describe(
            pointer,
            path,
            header,
            tensors,
            n_vocab=self.tokenizer.n_vocab,
            threads=threads,
            device=gpu_devices.device(gpu_layers),
            gpu_layers=gpu_layers if offloaded else None,
            variant=variant,
            weights=weights,
            cache_type=cache_type,
        )
        self._sizes = ContextSizes.of(header, tensors, cache_type, self.tokenizer.n_vocab)

    @property
    def pointer(self) -> api.llama_model_p:
        """The engine's model."""
        assert self._pointer is not None, "the model is closed"
        return self._pointer

    @property
    def is_offloaded(self) -> bool:
        """Whether layers may be on a GPU."""
        return self._offloaded

    @property
    def streamed_weights(self) -> StreamedWeights | None:
        """Weights that are read from disk in part; None for a model in memory."""
        return self._weights

    @property
    def shortage(self) -> str:
        return self._weights.shortage if self._weights else ""

    def open(self, n_ctx: int, *, drafts: bool = True) -> Context:
        """Open an empty context.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
            UsageError: the engine has no such cache.
        """
        assert self._pointer is not None, "the model is closed"
        info = self.info
        info.check_context(n_ctx)
        n_chunk = self._chunk_size(n_ctx)
        depth = self._depth(n_ctx, n_chunk)
        parameters = api.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = parameters.n_ubatch = n_chunk
        parameters.n_outputs_max = min(MAX_LOGITS, n_chunk)
        if info.rollback is Rollback.ANY:  # one sequence per branch of a tree, in one cache
            parameters.n_seq_max = parameters.n_outputs_max
            parameters.kv_unified = True
        parameters.type_k = parameters.type_v = GGML_TYPES[self._cache_type]
        parameters.n_threads = parameters.n_threads_batch = info.threads
        parameters.no_perf = True
        choices = self._choices()
        if choices is not None:
            parameters.cb_eval = choices.callback
        parameters.n_rs_seq = depth if drafts else 0
        library.forget_log()
        pointer = api.llama_init_from_model(self._pointer, parameters)
        while pointer is None and parameters.n_rs_seq:  # a GPU reports a shortage only now
            parameters.n_rs_seq //= 2
            pointer = api.llama_init_from_model(self._pointer, parameters)
        if pointer is None:
            raise self._open_error(n_ctx)
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
        context = LlamaContext(
            pointer,
            memory,
            n_vocab=info.n_vocab,
            n_ctx=n_ctx,
            n_chunk=n_chunk,
            max_logits=parameters.n_outputs_max,
            kv_bytes_per_token=self._sizes.kv_bytes_per_token,
            state=state,
            state_bytes=self._sizes.state_bytes * (1 + state.depth) if state else 0,
            saved_state_bytes=self._sizes.state_bytes,
            draft_refusal=_draft_refusal(info, state, drafts=drafts),
            tree_refusal="" if state is None else _ONE_LINE,
            on_close=self._contexts.discard,
            weights=self._weights,
            choices=choices,
            has_window=api.llama_model_n_swa(self._pointer) > 0,
            is_on_processor=not self._offloaded,
        )
        self._contexts.add(context)
        return context

    def _open_error(self, n_ctx: int) -> SpecchatError:
        """Error for a context that llama.cpp did not open, with the engine's reason."""
        reason = library.last_reason()
        if is_against_cache_type(reason):
            what = f"{self.info.name} cannot run with --kv {self._cache_type}"
            return UsageError(what, reason.partition(": ")[2], "Use --kv f16.")
        what = f"cannot open a context of {n_ctx:,} tokens"
        return OutOfMemoryError(what, reason, "Use a smaller --ctx.")

    def _choices(self) -> ChosenExperts | None:
        """Tells streamed weights which experts a pass chooses; None if none are read from disk."""
        weights = self._weights
        if weights is None or not weights.reads_experts:
            return None
        return ChosenExperts.of(self.info.active_experts, weights.choose)

    def hold(self, lock_bytes: int) -> None:
        """Lock up to so many bytes of streamed weights from now on. Not during a pass."""
        weights = self._weights
        assert weights is not None, "the model is in memory"
        weights.hold(lock_bytes)
        self.info = replace(self.info, **held(weights, self.info.expert_share))

    def _chunk_size(self, n_ctx: int) -> int:
        """Tokens of a prefill pass: few for slow models, so that stopping is quick.

        Streamed weights are read once for each, and its passes stop in between.

        It depends on the model, never on timing, so that a prompt is always split alike.
        """
        if self._weights is not None:
            return min(self._weights.chunk, n_ctx)
        small = self._offloaded or self.info.weight_bytes < _SMALL_MODEL_BYTES
        return min(256 if small else 64, n_ctx)

    def _depth(self, n_ctx: int, n_chunk: int) -> int:
        """Copies of a running state to keep beside the present one; 0 without one.

        Raises:
            ContextTooLargeError: the context does not fit without any.
        """
        sizes = self._sizes
        depth = min(sizes.usual_depth, max(n_chunk - 2, 0))  # else the engine aborts
        if self._offloaded:
            return depth
        n_logits = min(MAX_LOGITS, n_chunk)
        spare = sizes.spare(n_ctx, n_chunk, n_logits, available_memory())
        return min(depth, max(spare // max(sizes.state_bytes, 1), 0))

    def close(self) -> None:
        if self._pointer is None:
            return
        for context in list(self._contexts):
            context.close()
        if self._weights is not None:
            self._weights.settle()
        api.llama_model_free(self._pointer)
        self._pointer = None
        if self._weights is None:
            return
        if self._is_beside:
            self._weights.follow()  # without what this model had mapped
        else:
            self._weights.close()


def _draft_refusal(info: ModelInfo, state: RunningState | None, *, drafts: bool) -> str:
    if state is None or state.depth:
        return ""
    if info.rollback is Rollback.NONE:
        return info.rollback_refusal
    return _NO_ROOM if drafts else NO_COPIES
