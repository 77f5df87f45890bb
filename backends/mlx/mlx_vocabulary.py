"""Vocabulary of an MLX folder, without its weights."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from backends.base import Vocabulary
from backends.mlx.caches.layer_caches import make_caches, rollback_of
from backends.mlx.loading.folder_checks import checked_folder
from backends.mlx.loading.load_error import load_error
from backends.mlx.loading.tokenizer_files import read_tokenizer
from backends.mlx.mlx_model import n_vocab_of, read_module


@contextmanager
def vocabulary(path: Path) -> Generator[Vocabulary]:
    """Vocabulary of a folder, valid within the block.

    Raises:
        ModelError: a file is missing or damaged, or the architecture is unknown.
    """
    checked_folder(path)
    try:
        module, config = read_module(path, lazy=True)
        tokenizer = read_tokenizer(path, config, n_vocab_of(module))
        rollback = rollback_of(make_caches(module))
    except Exception as error:  # code of an architecture may raise anything
        raise load_error(path, error) from error
    del module
    yield Vocabulary(tokenizer, rollback)
