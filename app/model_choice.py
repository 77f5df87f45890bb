"""Which model answers when none is named."""

import contextlib
from collections.abc import Sequence

from app.paths import Paths
from backends.base import SpecchatError
from backends.base.private_file import make_private_folder
from backends.base.regular_file import read_text
from backends.choice import Form, backend_for, backend_for_form
from backends.device import available_memory
from models.installed import DEMO, best_installed
from models.reference import HubReference, Reference, at_hand, resolve
from models.whole_file import write_whole

_LONGEST_NAME = 1 << 14
"""Bytes; a path has at most a few thousand."""


def choose_model(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Reference | HubReference:
    """The named model; else the last one used, the best installed, the bundled one.

    forms: those to look for where a model comes in several, the best first.

    Raises:
        SpecchatError: nobody knows the named model, or the bundled one is not there.
    """
    if name:
        return resolve(name, paths.models, forms=forms)
    last = _last_used(paths)
    if last:
        with contextlib.suppress(SpecchatError):
            reference = at_hand(resolve(last, paths.models))
            if reference.path.exists():
                return reference
    best = best_installed(paths.models, available_memory(), forms) or DEMO
    return at_hand(resolve(best, paths.models))


def expected_backend(reference: Reference | HubReference, wanted: str) -> str:
    """The backend that will run a model, as far as that can be told before it is here.

    Raises:
        SpecchatError: there is none for it here.
    """
    if isinstance(reference, Reference):
        return backend_for(reference.path, wanted)
    return backend_for_form(reference.name, reference.form, wanted)


def remember_model(reference: Reference, paths: Paths) -> None:
    """Note a model that was asked for and loaded, for the next time none is named."""
    path = reference.path
    outside = path.name == reference.name and (path.suffix or path.is_dir())
    name = str(path.resolve()) if outside else reference.name
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_model, name)


def _last_used(paths: Paths) -> str:
    try:
        return read_text(paths.last_model, _LONGEST_NAME).strip()
    except (OSError, ValueError):
        return ""
