"""Every kind of file that a campaign can damage, by its name."""

from collections.abc import Callable

from scripts.fuzzing.chat_database import ChatDatabaseKind
from scripts.fuzzing.json_kind import JsonKind
from scripts.fuzzing.kind import Kind
from scripts.fuzzing.settings_kinds import CatalogueKind, SettingsKind
from scripts.fuzzing.stored_kinds import IndexKind, NgramKind, SavedStateKind
from scripts.fuzzing.template_kind import TemplateKind

KINDS: dict[str, Callable[[], Kind]] = {
    "settings": SettingsKind,
    "catalogue": CatalogueKind,
    "json": JsonKind,
    "ngram": NgramKind,
    "saved-state": SavedStateKind,
    "index": IndexKind,
    "chat-database": ChatDatabaseKind,
    "template": TemplateKind,
}
