"""Temporary files of candidate self-drafters, one at a time."""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backends.base import DraftUnavailableError, ModelInfo
from models.self_draft.layer_cuts import require_cut
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import Progress, SelfDrafts


class CandidateFiles:
    """Makes candidates of a target in the folder of its self-drafters.

    A requantized file is kept while candidates with fewer layers are cut from it, which takes a
    fraction of the time. close removes that file.
    """

    def __init__(
        self, store: SelfDrafts, info: ModelInfo, progress: Callable[[Recipe], Progress]
    ) -> None:
        self._store = store
        self._info = info
        self._progress = progress
        self._body = Recipe()
        self._body_file = info.path
        self._held = ExitStack()

    @contextmanager
    def made(self, recipe: Recipe) -> Generator[Path]:
        """Make the file of a recipe, valid within the block.

        Raises:
            DiskFullError: there is too little disk space.
            DraftUnavailableError: it cannot be made from this model, or not here.
            UsageError: the recipe does not fit the model.
        """
        info = self._info
        recipe.check(info.name, info.n_layers, info.active_experts)
        require_cut(info, recipe.skipped_layers)
        body = self._of(recipe.of_weights.body)
        if not recipe.skipped_layers:
            yield body
            return
        cut = Recipe(None, recipe.skipped_layers)
        with self._temporary() as place:
            self._store.write(body, place, cut, self._progress(recipe))
            yield place

    def close(self) -> None:
        """Remove the kept file."""
        self._held.close()
        self._body, self._body_file = Recipe(), self._info.path

    def _of(self, body: Recipe) -> Path:
        """File of a recipe with every layer, made unless it is the kept one."""
        if body != self._body:
            self.close()
            with ExitStack() as stack:
                place = stack.enter_context(self._temporary())
                self._store.write(self._info.path, place, body, self._progress(body))
                self._held = stack.pop_all()
            self._body, self._body_file = body, place
        if body.text:
            os.utime(self._body_file)  # so that no other process removes it as a leftover
        return self._body_file

    @contextmanager
    def _temporary(self) -> Generator[Path]:
        try:
            with self._store.temporary() as place:
                yield place
        except OSError as error:
            raise DraftUnavailableError(
                "no candidate can be kept", f"{self._store.folder}: {error.strerror or error}"
            ) from error
