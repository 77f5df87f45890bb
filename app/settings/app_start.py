"""All that the app starts with."""

from dataclasses import dataclass

from app.loading.session_options import SessionOptions
from app.settings.answering import Answering
from app.settings.preferences import Preferences
from app.settings.served_at import ServedAt


@dataclass(frozen=True, slots=True)
class AppStart:
    """Options and settings of the app.

    system, answering: the defaults of new chats. continues: whether the last chat opens.
    notices: settings that cannot be used, a sentence or two each. served_at: where other programs
    reach the model, None if nowhere.
    """

    session: SessionOptions
    system: str
    answering: Answering
    preferences: Preferences
    continues: bool = False
    notices: tuple[str, ...] = ()
    served_at: ServedAt | None = None
