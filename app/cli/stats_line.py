"""One line of figures below an answer."""

from app.engine.reply import Reply
from app.engine.reply_metrics import reply_metrics
from app.engine.session import Session
from app.tui import wording
from decoding.events import FinishReason

_ENDINGS = {
    FinishReason.LENGTH: "cut at --max-tokens",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def stats_line(session: Session, reply: Reply) -> str:
    """Measured figures of a reply that ended, and how it ended if not by itself."""
    figures = wording.stats(reply_metrics(session, reply)) or "no tokens"
    end = _ENDINGS.get(reply.finish_reason) if reply.finish_reason else None
    return f"[{wording.SEPARATOR.join(filter(None, [figures, end]))}]"
