"""`specchat ask`: one question, one answer, for scripts."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.chat.conversation import Conversation
from app.cli import option_values, options
from app.cli.json_output import Json, Output, write_object
from app.cli.opening import open_session
from app.cli.stats_line import stats_line
from app.cli.streaming import stream_answer
from app.cli.terminal import stderr, stdout, text_input
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.drafting.spec import draft_spec
from app.engine.reply import Reply, new_reply
from app.engine.report import reply_report
from app.engine.session import Session
from app.settings.answering import Answering
from backends.base import ModelError, UsageError
from backends.chat.chat_template import Message, Prompt
from decoding.events import FinishReason


@options.with_options(*options.SESSION, *options.ANSWER)
def ask(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="The question; '-' or none reads standard input.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="PATH", help="A text file to add; may be repeated."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")
    ] = False,
    json: Json = False,
    output: Output = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Print the answer when it is complete.")
    ] = False,
) -> None:
    """Answer one question on standard output; text piped in is added to it."""
    session_options = option_values.session_options(context)
    given = option_values.answer_options(context)
    if raw and given.system:
        raise UsageError("--raw and --system contradict each other", "raw text has no roles")
    text = text_input.gather(prompt, file or [])
    conversation = Conversation(given.system, [Message("user", text)])
    session = open_session(session_options)
    try:
        reply = new_reply()
        question = _Question(
            session,
            session.raw_prompt(text) if raw else session.prompt(conversation)[0],
            given.answering,
            as_json=json,
            output=output,
            streaming=not (json or no_stream),
        )
        question.answer(reply)
    finally:
        session.close()
    if reply.finish_reason is FinishReason.CANCELLED:
        raise typer.Exit(EXIT_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Question:
    """A prompt, and the form of its answer."""

    session: Session
    prompt: Prompt
    answering: Answering
    as_json: bool
    output: Path | None
    streaming: bool

    def answer(self, reply: Reply) -> None:
        """Print the answer; after an error, the part that came before it."""
        drafting = self.session.drafting
        if drafting.missing and drafting.requested != draft_spec.OFF:
            effect = "drafting continues without one" if drafting.handles else "drafting is off"
            stderr.note(f"note: {effect}: {drafting.missing}")
        rule = self.answering.sampling.lossy_in_effect
        warning = rule.warning if rule else ""
        notes = (*self.session.notes, *drafting.notes, self.prompt.note, warning)
        for text in filter(None, notes):
            stderr.note(f"note: {text}")
        try:
            stream_answer(
                self.session,
                self.prompt,
                self.answering.sampling,
                self.answering.max_tokens,
                reply,
                shown=self.streaming,
            )
        except ModelError:
            self._print(reply)
            raise
        self._print(reply)

    def _print(self, reply: Reply) -> None:
        stderr.clear_status()
        if self.as_json:
            answering = self.answering
            report = reply_report(self.session, reply, answering.sampling, answering.max_tokens)
            write_object(report, self.output)
            return
        text = "" if self.streaming else reply.text
        stdout.write(text if reply.text.endswith("\n") else f"{text}\n")
        if sys.stderr.isatty():
            stderr.note(stats_line(self.session, reply))
