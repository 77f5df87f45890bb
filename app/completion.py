"""Values that a shell completes; nothing is loaded, and errors complete nothing.

Each imports what it lists: the options of every command are declared with them.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from importlib import import_module

from backends.base import SpecchatError


def _named(module: str, names: str) -> Callable[[str], list[str]]:
    return lambda incomplete: _starting(incomplete, getattr(import_module(module), names))


backends = _named("backends.engines.backend_selection", "BACKENDS")
clients = _named("app.serve.clients", "CLIENTS")
stream_choices = _named("app.loading.session_options", "STREAM_CHOICES")
kv_choices = _named("app.loading.session_options", "KV_CHOICES")
efforts = _named("backends.chat.reply_form", "EFFORTS")
suites = _named("app.bench.suites", "SUITES")


def models(incomplete: str) -> list[str]:
    """Installed models, then the catalogue's."""
    names = [*installed_models(incomplete), *catalogue_models(incomplete)]
    return list(dict.fromkeys(names))


def installed_models(incomplete: str) -> list[str]:
    from app.paths import Paths
    from models.stores.available_models import known_names

    return _starting(incomplete, known_names(Paths.of_this_user().models))


def catalogue_models(incomplete: str) -> list[str]:
    from models import catalogue

    return _starting(incomplete, (entry.name for entry in catalogue.entries() if entry.chats))


def drafters(incomplete: str) -> list[str]:
    """Values of --draft; in a comma list, the last drafter is completed."""
    from app.drafting import draft_spec

    head, comma, last = incomplete.rpartition(",")
    names = dict.fromkeys([*draft_spec.WORDS, *models(last)])
    return [f"{head}{comma}{name}" for name in _starting(last, names)]


def presets(incomplete: str) -> list[str]:
    from app.paths import Paths
    from app.settings.presets import Presets

    return _starting(incomplete, Presets.of(Paths.of_this_user()).names())


def chats(incomplete: str) -> list[tuple[str, str]]:
    """Numbers of saved chats with their titles, the latest first."""
    from app.history.store import open_history
    from app.paths import Paths

    paths = Paths.of_this_user()
    if not paths.history.exists():
        return []
    try:
        with closing(open_history(paths, repairs=False)) as history:
            numbered = [(str(chat.number), chat.title) for chat in history.chats()]
    except SpecchatError:
        return []
    return [(number, title) for number, title in numbered if number.startswith(incomplete)]


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]
