"""Vocabulary of a GGUF file, without its weights."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from llama_cpp import llama_cpp as api

from backends.base import Vocabulary
from backends.files.gguf_header import parts
from backends.llamacpp import library
from backends.llamacpp.llama_tokenizer import LlamaTokenizer
from backends.llamacpp.loading.load_checks import checked_header, load_error
from backends.llamacpp.model_description import rollback


@contextmanager
def vocabulary(path: Path) -> Generator[Vocabulary]:
    """Vocabulary of a file, valid within the block.

    Raises:
        ModelError: the file is missing, damaged or of an unknown architecture.
    """
    header = checked_header(parts(path)[0])
    library.start()
    library.forget_log()
    parameters = api.llama_model_default_params()
    parameters.vocab_only = True
    pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        raise load_error(path, header)
    try:
        yield Vocabulary(LlamaTokenizer(pointer, None), rollback(pointer, header.architecture))
    finally:
        api.llama_model_free(pointer)
