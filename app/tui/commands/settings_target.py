"""Brings changed settings into effect: in the app, in its engine and in its chat."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.dialogue.dialogue import Dialogue
from app.engine.engine import Engine
from app.loading.context_check import check_new_context
from app.loading.session_options import DEFAULT_CONTEXT
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, Value
from app.settings.in_effect import settings_in_effect
from app.settings.preferences import NAMES
from app.tui.conversation.chat_view import ChatView
from app.tui.store import Store
from app.tui.usable_preferences import check_theme


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The settings of the running app. use_draft: switches drafters, after a download if needed."""

    engine: Engine
    view: ChatView
    store: Store
    use_model: Callable[[str], None]
    use_draft: Callable[[str], None]

    @property
    def dialogue(self) -> Dialogue:
        """The chat shown."""
        return self.view.dialogue

    def setting(self, name: str) -> Value:
        """A setting of every chat that is in effect."""
        if name in NAMES:
            return getattr(self.store.preferences, name)
        if name == "draft":
            return self.engine.draft
        loaded = self.engine.status.loaded
        if name == "ctx":
            chosen = self.engine.options.ctx or DEFAULT_CONTEXT
            return loaded.context_size if loaded else chosen
        if name == "model":
            return loaded.name if loaded else self.engine.options.model or ""
        return settings_in_effect(self.engine.paths).values.get(name, BY_NAME[name].default)

    @property
    def usual_context(self) -> int:
        """Tokens of context where none are set: fewer where the model or the memory has less."""
        loaded, options = self.engine.status.loaded, self.engine.options
        if loaded is None:
            return DEFAULT_CONTEXT
        if options.ctx is None:
            return loaded.context_size
        return min(loaded.info.context_limit, DEFAULT_CONTEXT)

    def check_setting(self, name: str, value: Value) -> None:
        """Refuse a value that cannot work, before it is kept.

        Raises:
            SpecchatError: it cannot.
        """
        if name == "ctx":
            loaded, options = self.engine.status.loaded, self.engine.options
            info = loaded.info if loaded else None
            present = loaded.context_size if loaded else 0
            check_new_context(int(value), info, present, options.gpu_layers)

    def use_setting(self, name: str, value: Value) -> None:
        """Bring a setting of every chat into effect at once.

        Raises:
            SpecchatError: the value cannot be used.
        """
        if name == "theme":
            check_theme(str(value))
        if name in NAMES:
            changed: dict[str, Any] = {name: value}
            self.store.preferences = replace(self.store.preferences, **changed)
        elif name == "model":
            self.use_model(str(value))
        elif name == "draft":
            self.use_draft(str(value))
        elif name == "ctx":
            self.engine.set_context(None if value == self.usual_context else int(value))
            self.view.call_later(self.view.clear_fault)  # it may have been about the old size

    def use_defaults(self, answering: Answering, system: str) -> None:
        """Start new chats with these settings."""
        self.view.defaults = answering
        self.view.dialogue.use_default_system(system)

    def show_chat_settings(self) -> None:
        """Show that settings of the chat have changed."""
        self.view.show_settings()
