"""Files of self-drafters that are only tried: one at a time, and gone when they were judged."""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backends.base import DraftUnavailableError, ModelInfo
from models.self_draft.layer_cuts import require_cut
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import Progress, SelfDrafts


class CandidateFiles:
    """Makes the candidates of one target, in the folder of its self-drafters.

    What is in fewer bits is kept while candidates without some of its layers are cut from it: that
    takes a fraction of the time. Close it to remove that file too.
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
        """The file of a recipe, valid within the block.

        Raises:
            DiskFullError: there is no room for it.
            DraftUnavailableError: it cannot be made of this model, or not here.
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
            self._store.write(self._info, body, place, cut, self._progress(recipe))
            yield place

    def close(self) -> None:
        """Remove what is kept."""
        self._held.close()
        self._body, self._body_file = Recipe(), self._info.path

    def _of(self, body: Recipe) -> Path:
        """The file with every layer, made if it is not the one that is kept."""
        if body != self._body:
            self.close()
            with ExitStack() as stack:
                place = stack.enter_context(self._temporary())
                self._store.write(self._info, self._info.path, place, body, self._progress(body))
                self._held = stack.pop_all()
            self._body, self._body_file = body, place
        if body.text:
            os.utime(self._body_file)  # nobody else is to take it for what a crash left
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
