"""`specchat ask`: one question, one answer, for scripts."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app import draft_spec
from app.cli import options
from app.cli.opening import open_session
from app.cli.stats_line import stats_line
from app.cli.streaming import stream_answer
from app.cli.terminal import stderr, stdout, text_input
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.conversation import Conversation
from app.reply import Reply, new_reply
from app.report import reply_report
from app.session import Session
from app.settings.catalogue import DEFAULT_MAX_TOKENS
from backends.base import ModelError, UsageError
from backends.chat_template import Message, Prompt
from decoding.events import FinishReason
from decoding.lossy_rule import OFF
from decoding.sampling import SamplingSettings

_DEFAULTS = SamplingSettings()


def ask(
    context: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="The question; '-' or none reads standard input.")
    ] = None,
    model: options.Model = None,
    draft: options.Draft = "auto",
    backend: options.Backend = "auto",
    ctx: options.Ctx = None,
    threads: options.Threads = None,
    gpu_layers: options.GpuLayers = None,
    offline: options.Offline = False,
    system: options.System = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="PATH", help="A text file to add; may be repeated."),
    ] = None,
    temperature: options.Temperature = _DEFAULTS.temperature,
    top_k: options.TopK = _DEFAULTS.top_k,
    top_p: options.TopP = _DEFAULTS.top_p,
    min_p: options.MinP = _DEFAULTS.min_p,
    repeat_penalty: options.RepeatPenalty = _DEFAULTS.repeat_penalty,
    seed: options.Seed = None,
    lossy: options.Lossy = OFF,
    max_tokens: options.MaxTokens = DEFAULT_MAX_TOKENS,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it stands, without chat template.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object with the answer and every figure.")
    ] = False,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Print the answer when it is whole.")
    ] = False,
) -> None:
    """Answer one question on standard output; text piped in is added to it."""
    session_options = options.session_options(context)
    rule = options.lossy_rule(context)
    settings = options.sampling(temperature, top_k, top_p, min_p, repeat_penalty, seed, rule)
    if raw and system:
        raise UsageError("--raw and --system contradict each other", "raw text has no roles")
    options.check_max_tokens(max_tokens)
    text = text_input.gather(prompt, file or [])
    system = text_input.check(system, "the system message") if system else ""
    asked = Conversation(system, [Message("user", text)])
    session = open_session(session_options)
    try:
        reply = new_reply()
        question = _Question(
            session,
            session.raw_prompt(text) if raw else session.prompt(asked)[0],
            settings,
            max_tokens,
            as_json=json,
            streaming=not (json or no_stream),
        )
        question.answer(reply)
    finally:
        session.close()
    if reply.finish_reason is FinishReason.CANCELLED:
        raise typer.Exit(EXIT_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Question:
    """A prompt on its way to an answer, and the form the answer is wanted in."""

    session: Session
    prompt: Prompt
    settings: SamplingSettings
    max_tokens: int
    as_json: bool
    streaming: bool

    def answer(self, reply: Reply) -> None:
        """Print the answer; what was said before an error is printed too."""
        drafting = self.session.drafting
        if drafting.missing and drafting.requested != draft_spec.OFF:
            effect = "drafting goes on without one" if drafting.built else "drafting is off"
            stderr.note(f"note: {effect}: {drafting.missing}")
        rule = self.settings.lossy_in_effect
        warning = rule.warning if rule else ""
        notes = (*self.session.notes, *drafting.notes, self.prompt.note, warning)
        for text in filter(None, notes):
            stderr.note(f"note: {text}")
        try:
            stream_answer(
                self.session,
                self.prompt,
                self.settings,
                self.max_tokens,
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
            report = reply_report(self.session, reply, self.settings, self.max_tokens)
            stdout.write_json(report)
            return
        text = "" if self.streaming else reply.text
        stdout.write(text if reply.text.endswith("\n") else f"{text}\n")
        if sys.stderr.isatty():
            stderr.note(stats_line(self.session, reply))
