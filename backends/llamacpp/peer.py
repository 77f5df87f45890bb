"""llama-cpp-python's own generation with its own prompt lookup, for comparison in the bench."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.base import ModelError
from backends.llamacpp import library

NAME = "llama-cpp-python lookup"

Reply = tuple[list[int], float]
"""Tokens, and seconds from the first of them to the last."""


class Peer:
    """One model as llama-cpp-python runs it, with the settings its documents recommend."""

    def __init__(self, path: Path, n_ctx: int, threads: int, *, on_gpu: bool) -> None:
        """Raises ModelError where it cannot be loaded."""
        library.start()
        try:
            self._llama = Llama(
                str(path),
                n_ctx=n_ctx,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=-1 if on_gpu else 0,
                draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10 if on_gpu else 2),
                verbose=False,
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ModelError(f"{NAME} cannot be compared", str(error)) from error

    def reply(
        self,
        prompt: Sequence[int],
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        max_tokens: int,
        ends: Callable[[int], bool],
    ) -> Reply:
        """Continue a prompt.

        Raises:
            ModelError: it failed.
        """
        self._llama.set_seed(seed)
        tokens: list[int] = []
        first_at = last_at = 0.0
        try:
            for token in self._llama.generate(
                list(prompt),
                temp=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repeat_penalty=1.0,
            ):
                last_at = time.perf_counter()
                first_at = first_at or last_at
                tokens.append(token)
                if ends(token) or len(tokens) >= max_tokens:
                    break
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(f"{NAME} failed", str(error)) from error
        return tokens, last_at - first_at

    def close(self) -> None:
        """Free its memory."""
        self._llama.close()
