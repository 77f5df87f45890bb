"""Kinds of files to fuzz, by name."""

from collections.abc import Callable

from scripts.fuzzing.chat_database import ChatDatabaseKind
from scripts.fuzzing.heads.folder_kind import HeadFolders
from scripts.fuzzing.heads.head_kinds import Heads, RecentModels
from scripts.fuzzing.json_kind import JsonKind
from scripts.fuzzing.kind import Kind
from scripts.fuzzing.model_files import Engine, Gguf, MlxConfig, Safetensors
from scripts.fuzzing.settings_kinds import CatalogueKind, SettingsKind
from scripts.fuzzing.stored_kinds import IndexKind, NgramKind, SavedStateKind
from scripts.fuzzing.template_kind import TemplateKind

_KINDS: tuple[Callable[[], Kind], ...] = (
    Gguf, Safetensors, MlxConfig, Engine, RecentModels, Heads, HeadFolders,
    SettingsKind, CatalogueKind, JsonKind, NgramKind, SavedStateKind, IndexKind, ChatDatabaseKind,
    TemplateKind,
)  # fmt: skip
KINDS: dict[str, Callable[[], Kind]] = {make().name: make for make in _KINDS}
