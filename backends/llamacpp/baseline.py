"""Baseline of the bench: llama-cpp-python's own generation with its own prompt lookup."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.base import CacheType, ModelError, Warping
from backends.base.baseline_engine import BaselineEngine
from backends.llamacpp import library
from backends.llamacpp.library import GGML_TYPES


class LlamaBaseline(BaselineEngine):
    """A model run by llama-cpp-python with the settings its documentation recommends."""

    name = "llama-cpp-python lookup"

    def __init__(
        self, path: Path, n_ctx: int, threads: int, gpu_layers: int, cache_type: CacheType
    ) -> None:
        """Load the model; raises ModelError if that fails. gpu_layers: negative for all."""
        is_quantized = cache_type is not CacheType.F16
        kind = GGML_TYPES[cache_type]
        library.start()
        try:
            self._llama = Llama(
                str(path),
                n_ctx=n_ctx,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=gpu_layers,
                type_k=kind,
                type_v=kind,
                flash_attn=is_quantized,  # which quantized values need
                draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10 if gpu_layers else 2),
                verbose=False,
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ModelError(f"{self.name} cannot be compared", str(error)) from error

    def tokens(
        self, prompt: Sequence[int], warping: Warping, seed: int, max_tokens: int
    ) -> Iterable[int]:
        del max_tokens
        self._llama.set_seed(seed)
        return self._llama.generate(
            list(prompt),
            temp=warping.temperature,
            top_k=warping.top_k,
            top_p=warping.top_p,
            min_p=warping.min_p,
            repeat_penalty=1.0,
        )

    def close(self) -> None:
        self._llama.close()
