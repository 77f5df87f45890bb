"""Memory of held weights for a child process, which makes or checks a model meanwhile."""

from collections.abc import Generator
from contextlib import contextmanager

from backends.base import Model
from backends.engines.model_loading import hold


@contextmanager
def letting_go(target: Model, lock_bytes: int) -> Generator[None]:
    """Hold none of a streamed model's weights within the block, and lock_bytes after it.

    After an error none: who handles it holds what is needed then, which takes a while. Not during a
    pass.
    """
    hold(target, 0)  # beyond the limit of a container, Linux would end processes
    yield
    hold(target, lock_bytes)
