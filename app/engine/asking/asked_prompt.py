"""The prompt of a request."""

from app.chat.question import Infill, RawText
from app.engine.asking.answer import Request
from app.engine.session import Session
from backends.base import PromptTooLongError
from backends.chat.chat_template import Prompt


def prompt_of(session: Session, request: Request) -> tuple[Prompt, int]:
    """The prompt of a request, and how many of its oldest turns were left out.

    Raises:
        PromptTooLongError: it leaves no room for an answer, also without the oldest turns where
            these may be left out.
        UsageError: the model was not trained to fill gaps.
    """
    if request.text is not None:
        return _of_text(session, request.text), 0
    prompt, dropped = session.prompt(request.conversation, request.partial)
    if dropped and not request.may_drop:
        whole = session.whole_prompt(request.conversation)
        raise PromptTooLongError(len(whole.tokens), session.context.n_ctx)
    return prompt, dropped


def _of_text(session: Session, text: RawText | Infill) -> Prompt:
    if isinstance(text, RawText):
        return session.raw_prompt(text.text)
    return session.infill_prompt(text.before, text.after)
