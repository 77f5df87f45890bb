"""The vocabulary of an MLX folder, without its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backends.base import Rollback, Vocabulary
from backends.mlx.caches import make_caches, rollback_refusal
from backends.mlx.load_error import load_error
from backends.mlx.model import n_vocab_of, read_module
from backends.mlx.refusals import checked_folder
from backends.mlx.tokenizer_files import read_tokenizer


@contextmanager
def vocabulary(path: Path) -> Iterator[Vocabulary]:
    """The vocabulary of a folder, valid within the block.

    Raises:
        ModelError: a file is missing or damaged, or it is of an unknown architecture.
    """
    checked_folder(path)
    try:
        module, config = read_module(path, lazy=True)
        tokenizer = read_tokenizer(path, config, n_vocab_of(module))
        refusal = rollback_refusal(make_caches(module))
    except Exception as error:  # an architecture's own code may raise anything
        raise load_error(path, error) from error
    del module
    yield Vocabulary(tokenizer, Rollback.NONE if refusal else Rollback.ANY)
