"""What answers prompts: a session on a model in this process, or a server elsewhere."""

from typing import Any

from app.engine.metrics import ReplyMetrics, reply_metrics
from app.engine.remote_session import RemoteSession
from app.engine.reply import Reply
from app.engine.report import reply_report
from app.engine.session import Session
from app.engine.status import Loaded

Answerer = Session | RemoteSession


def loaded_of(answerer: Answerer) -> Loaded:
    return answerer.loaded if isinstance(answerer, RemoteSession) else Loaded.of(answerer)


def metrics_of(answerer: Answerer, reply: Reply, *, is_final: bool = True) -> ReplyMetrics:
    """Figures of a reply at this moment, as reply_metrics tells them."""
    if isinstance(answerer, RemoteSession):
        return answerer.metrics(reply)
    return reply_metrics(answerer, reply, is_final=is_final)


def report_of(answerer: Answerer, reply: Reply) -> dict[str, Any]:
    """The JSON report of a reply that ended (docs/reference/json.md)."""
    if isinstance(answerer, RemoteSession):
        return answerer.report(reply)
    return reply_report(answerer, reply)
