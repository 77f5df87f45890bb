"""The prompt of a request."""

from app.chat.question import RawText
from app.engine.asking.answer import Request
from app.engine.session import Session
from backends.base import PromptTooLongError, UsageError
from backends.chat.chat_template import Prompt


def prompt_of(session: Session, request: Request) -> tuple[Prompt, int]:
    """The prompt of a request, and how many of its oldest turns were left out.

    Raises:
        PromptTooLongError: it leaves no room for an answer, also without the oldest turns where
            these may be left out.
        UsageError: the model was not trained to fill gaps.
    """
    if request.text is not None:
        return _of_text(session, request), 0
    prompt, dropped = session.prompt(request.conversation, request.partial, request.tools)
    if dropped and not request.may_drop:
        whole = session.whole_prompt(request.conversation, request.tools)
        raise PromptTooLongError(len(whole.tokens), session.context.n_ctx)
    return prompt, dropped


def _of_text(session: Session, request: Request) -> Prompt:
    if isinstance(request.text, RawText):
        return session.raw_prompt(request.text.text)
    raise UsageError("this model cannot fill in the middle", "it was not trained to")
