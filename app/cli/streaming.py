"""Prints an answer as it is generated."""

from contextlib import closing

from app.chat.reply_options import USUAL, ReplyOptions
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import interruptible
from app.engine.reply import Reply
from app.engine.session import Session
from backends.chat.chat_template import Prompt
from decoding.events import Prefill
from decoding.sampling.sampling_settings import SamplingSettings


def stream_answer(
    session: Session,
    prompt: Prompt,
    settings: SamplingSettings,
    max_tokens: int,
    reply: Reply,
    options: ReplyOptions = USUAL,
    *,
    shown: bool = True,
) -> None:
    """Generate a reply, printing its text as it comes if shown; the first Ctrl-C stops it.

    Raises:
        ModelError: the engine failed; reply holds what was generated before.
    """
    with (
        interruptible() as stop,
        closing(
            session.stream(prompt, settings, max_tokens, reply, stop.is_set, options)
        ) as stream,
    ):
        for event, added in stream:
            if isinstance(event, Prefill):
                stderr.status(f"reading the prompt: {event.done:,} of {event.total:,} tokens")
            elif added and shown:
                stderr.clear_status()
                stdout.write(added)
