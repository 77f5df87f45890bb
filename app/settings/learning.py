"""Privacy switches for what drafters store, obeyed by every command."""

from app.paths import Paths
from app.settings.catalogue import BY_NAME
from app.settings.in_effect import settings_in_effect


def may_learn(paths: Paths) -> bool:
    """Whether drafters may store what they learn from answers; False if the setting is unusable."""
    return _is_on("learn", paths)


def may_index(paths: Paths) -> bool:
    """Whether earlier chats may be indexed for drafting; False if the setting is unusable."""
    return _is_on("retrieval", paths)


def _is_on(name: str, paths: Paths) -> bool:
    return bool(settings_in_effect(paths).values.get(name, BY_NAME[name].default))
