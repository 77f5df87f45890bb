"""The vocabulary of an MLX folder, without its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlx_lm.utils import load_model

from backends.base import ModelError, Rollback, Vocabulary
from backends.mlx.caches import make_caches, running_state
from backends.mlx.tokenizer import read_tokenizer
from backends.mlx_folder import read_mlx_folder


@contextmanager
def vocabulary(path: Path) -> Iterator[Vocabulary]:
    """The vocabulary of a folder, valid within the block.

    Raises:
        ModelError: a file is missing or damaged, or it is of an unknown architecture.
    """
    folder = read_mlx_folder(path)
    try:
        module, config = load_model(path, lazy=True)  # names and shapes; nothing is computed
        caches = make_caches(module)
    except Exception as error:  # an architecture's own code may raise anything
        raise ModelError(f"{path} cannot be read", str(error), "Download it again.") from error
    tokenizer = read_tokenizer(path, config, folder.count("vocab_size"))
    del module
    yield Vocabulary(tokenizer, Rollback.NONE if running_state(caches) else Rollback.ANY)
