"""The prompt of a request."""

from app.chat.question import Infill, RawText
from app.engine.asking.answer import Answer, Request
from app.engine.session import Session
from backends.base import PromptTooLargeError, PromptTooLongError
from backends.chat.chat_template import Prompt

_MOST_PER_TOKEN = 16
"""Characters for each token of the context that are still turned into tokens; a guess, not
measured. Prose has 4 or 5; only long runs of spaces could have as many and fit after all."""


def prompt_for(session: Session, answer: Answer) -> Prompt:
    """The prompt of an answer, which is built once for one session.

    Raises:
        UsageError: as of prompt_of.
    """
    if answer.prepared is not None and answer.prepared[0] is session:
        return answer.prepared[1]
    prompt, answer.dropped = prompt_of(session, answer.request)
    answer.form = prompt.form
    answer.prepared = session, prompt
    return prompt


def prompt_of(session: Session, request: Request) -> tuple[Prompt, int]:
    """The prompt of a request, and how many of its oldest turns were left out.

    Raises:
        PromptTooLargeError: it is far too long, so that its tokens were not even counted.
        PromptTooLongError: it leaves no room for an answer, also without the oldest turns where
            these may be left out.
        UsageError: the model was not trained to fill gaps.
    """
    size, n_ctx = _least_size(request), session.context.n_ctx
    if size > _MOST_PER_TOKEN * n_ctx:  # else others would wait for seconds while it is read
        raise PromptTooLargeError(size, n_ctx)
    if request.text is None and request.may_drop:
        prompt, dropped = session.prompt(request.conversation, request.tools)
        return session.continued(prompt, request.partial, request.begun), dropped
    text = request.text
    prompt = _whole(session, request) if text is None else _of_text(session, text)
    if len(prompt.tokens) >= session.context.n_ctx:
        raise PromptTooLongError(len(prompt.tokens), session.context.n_ctx)
    return prompt, 0


def _least_size(request: Request) -> int:
    """Characters of the part of a request that is never left out."""
    text, conversation = request.text, request.conversation
    if isinstance(text, RawText):
        return len(text.text)
    if text is not None:
        return len(text.before) + len(text.after)
    turns = conversation.turns[-1:] if request.may_drop else conversation.turns
    calls = [call.arguments for turn in turns for call in turn.calls]
    told = [conversation.system, request.partial, *(turn.content for turn in turns), *calls]
    tools = [text for tool in request.tools for text in (tool.description, tool.parameters)]
    return sum(map(len, [*told, *tools]))


def _of_text(session: Session, text: RawText | Infill) -> Prompt:
    if isinstance(text, RawText):
        return session.raw_prompt(text.text)
    return session.infill_prompt(text.before, text.after)


def _whole(session: Session, request: Request) -> Prompt:
    prompt = session.whole_prompt(request.conversation, request.tools)
    return session.continued(prompt, request.partial, request.begun)
