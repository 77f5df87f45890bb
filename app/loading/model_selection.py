"""Chooses the model to run when none is named."""

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
"""Bytes of a file that holds one name or path."""


def choose_model(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Reference | HubReference:
    """The first of `model_choices`.

    Raises:
        SpecchatError: there is no such model, or the bundled one is not installed.
    """
    return next(model_choices(name, paths, forms))


def model_choices(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Iterator[Reference | HubReference]:
    """The named model; else the last that answered, the best installed one, the bundled one.

    forms: file formats to look for, in order of preference. Each model is looked up when the
    iterator reaches it.

    Raises:
        SpecchatError: there is no such model, or the bundled one is not installed.
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
        return  # errors of the other models are more helpful
    if last is None or demo.path != last.path:
        yield demo


def expected_backend(reference: Reference | HubReference, wanted: str) -> str:
    """The backend that will run a model, also before its download.

    Raises:
        SpecchatError: no backend of this machine can run it.
    """
    if isinstance(reference, Reference):
        return backend_for(reference.path, wanted)
    return backend_for_form(reference.name, reference.form, wanted)


def remember_model(reference: Reference, paths: Paths) -> None:
    """Keep the name of a model that answered, for the next start without a name."""
    name = lasting_name(reference)
    if name == _last_name(paths):
        return
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_model, os.fsencode(name))


def lasting_name(reference: Reference) -> str:
    """A name that finds a model again from any folder: its path if it has no other."""
    path = reference.path
    outside = path.name == reference.name and (path.suffix or path.is_dir())
    return str(path.resolve()) if outside else reference.name


def _last_used(paths: Paths) -> Reference | None:
    """The model that answered last, None if it no longer exists."""
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
