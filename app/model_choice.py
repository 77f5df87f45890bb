"""Which model answers when none is named."""

import contextlib
import os
from collections.abc import Iterator, Sequence

from app.paths import Paths
from backends.base import SpecchatError
from backends.base.atomic_file import write_whole
from backends.base.private_file import make_private_folder
from backends.base.regular_file import read_bounded
from backends.engines.backend_selection import Form, backend_for, backend_for_form
from backends.hardware.host import available_memory
from models.reference import HubReference, Reference, at_hand, resolve
from models.stores.available_models import DEMO, best_installed

_LONGEST_NAME = 1 << 14
"""Bytes; a path has at most a few thousand."""


def choose_model(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Reference | HubReference:
    """The first of model_choices.

    Raises:
        SpecchatError: nobody knows the named model, or the bundled one is not there.
    """
    return next(model_choices(name, paths, forms))


def model_choices(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Iterator[Reference | HubReference]:
    """The named model; else the last one that answered, the best installed, the bundled one.

    forms: those to look for where a model comes in several, the best first. Each is looked for
    when its turn comes.

    Raises:
        SpecchatError: nobody knows the named model, or the bundled one is not there.
    """
    if name:
        yield resolve(name, paths.models, forms=forms)
        return
    last = _last_used(paths)
    if last is not None:
        yield last
    best = best_installed(paths.models, available_memory(), forms)
    if best is not None:
        reference = at_hand(resolve(best, paths.models))
        if last is None or reference.path != last.path:
            yield reference
    try:
        demo = at_hand(resolve(DEMO, paths.models))
    except SpecchatError:
        if last is None and best is None:
            raise
        return  # what went wrong with the others tells more
    if last is None or demo.path != last.path:
        yield demo


def expected_backend(reference: Reference | HubReference, wanted: str) -> str:
    """The backend that will run a model, as far as that can be told before it is here.

    Raises:
        SpecchatError: there is none for it here.
    """
    if isinstance(reference, Reference):
        return backend_for(reference.path, wanted)
    return backend_for_form(reference.name, reference.form, wanted)


def remember_model(reference: Reference, paths: Paths) -> None:
    """Note a model that was asked for and has answered, for the next time none is named."""
    path = reference.path
    outside = path.name == reference.name and (path.suffix or path.is_dir())
    name = str(path.resolve()) if outside else reference.name
    if name == _last_name(paths):
        return
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_model, os.fsencode(name))


def _last_used(paths: Paths) -> Reference | None:
    """The model that is remembered, None where none is or it is gone."""
    name = _last_name(paths)
    if not name:
        return None
    with contextlib.suppress(SpecchatError):
        reference = at_hand(resolve(name, paths.models))
        if reference.path.exists():
            return reference
    return None


def _last_name(paths: Paths) -> str:
    try:
        return os.fsdecode(read_bounded(paths.last_model, _LONGEST_NAME)).strip()
    except (OSError, ValueError):
        return ""
