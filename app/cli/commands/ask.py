"""`specchat ask`: one question, one answer, for scripts."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.chat.attachments import in_full
from app.chat.conversation import Conversation, RawText, ReplyOptions
from app.chat.sources import Source, sources_of, told
from app.cli import option_values, options
from app.cli.calling import Calling
from app.cli.output import Json, Output, write_object
from app.cli.session import open_session, stats_line
from app.cli.terminal import stderr, stdout, text_input
from app.cli.terminal.process import EXIT_INTERRUPTED
from app.dialogue.libraries import Talk, attachments_of, read_now
from app.documents.library import Library
from app.drafting import draft_spec
from app.engine.reply import Reply, Request
from app.engine.report import reply_report
from app.engine.session import Session
from app.structured_output import read_grammar, read_schema
from app.tools.toolbox import OFF
from backends.base import ModelError, UsageError
from backends.chat.chat_template import Prompt
from backends.chat.message import Message, ToolCall
from backends.chat.reply_form import THINK_AUTO, offers_thinking
from decoding.constraint.grammar import Grammar
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
    folder: options.Folder = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")
    ] = False,
    predict: Annotated[
        Path | None,
        typer.Option(
            "--predict",
            metavar="FILE",
            help="A text that the answer will mostly repeat, such as a file to rewrite; it only "
            "makes the answer faster.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="A JSON schema that the answer must match."),
    ] = None,
    grammar: Annotated[
        Path | None,
        typer.Option(
            "--grammar",
            metavar="FILE",
            help="A grammar that the answer must match: GBNF, or by the end of the file's "
            "name Lark (.lark) or a regular expression (.regex).",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="TOOL", help="A server's tool that may be called."),
    ] = None,
    json: Json = False,
    output: Output = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Print the answer when it is complete.")
    ] = False,
) -> None:
    """Answer one question on standard output; text piped in is added to it."""
    session_options = option_values.session_options(context)
    system, answering = option_values.answer_options(context)
    if raw and system:
        raise UsageError("--raw and --system contradict each other", "raw text has no roles")
    must_match = _grammar(schema, grammar)
    text = text_input.gather(prompt, file or [])
    known = ReplyOptions(
        grammar=must_match,
        prediction=text_input.predicted(predict) if predict else "",
        think_budget=answering.think_budget,
    )
    folders = [_folder(folder)] if folder else []
    streaming, failure = not (json or no_stream), None
    session = open_session(session_options)
    asked, found = text, attachments_of(folders, text, Talk(), session.context.facts.n_ctx)
    text, sources = in_full(text, found), sources_of(found)
    request = Request(
        Conversation(system, [Message("user", text)], answering.think),
        answering.sampling,
        answering.max_tokens,
        options=known,
        text=RawText(text) if raw else None,
        documents=folders[0].texts if folders else None,
    )
    roots = [Path(folder)] if folder else [path.absolute().parent for path in file or []]
    calling = Calling(lambda: roots, _refused, offline=session_options.offline)
    calling.chosen, calling.allowed = answering.tools, " ".join(allow or [])
    if calling.is_on and (must_match is not None or raw):
        calling.chosen = OFF
        stderr.note("note: raw text, and an answer of a given form, call no tools")
    try:
        request = calling.offered(request)
        reply = Reply(request)
        question, _ = session.prompt(request)
        _note_limits(session, question, request)
        try:
            for each in calling.streamed(session, reply, question, says=streaming):
                reply = each
        except ModelError as error:
            failure = error  # raised once the part before it is printed
        stderr.clear_status()
        if json:
            more = {"calls": calling.told, "sources": [asdict(one) for one in sources.values()]}
            more = {name: value for name, value in more.items() if value}
            write_object({**reply_report(session, reply), **more}, output)
        else:
            rest = "" if streaming else reply.text
            stdout.write(rest if reply.text.endswith("\n") else f"{rest}\n")
            _note_sources(asked, sources, reply.text, folders)
            if sys.stderr.isatty():
                stderr.note(stats_line(session, reply))
        if must_match is not None and reply.finish_reason in (
            FinishReason.LENGTH,
            FinishReason.CONTEXT,
        ):
            stderr.note(
                f"cut off after {reply.statistics.completion_tokens:,} tokens: the answer "
                "is only the beginning of one that matches"
            )
    finally:
        calling.close()
        session.close()
    if failure is not None:
        raise failure
    if reply.finish_reason is FinishReason.CANCELLED:
        raise typer.Exit(EXIT_INTERRUPTED)


def _note_sources(
    asked: str, sources: dict[int, Source], answer: str, folders: Sequence[Library]
) -> None:
    in_all = sum(one.passages for one in folders)
    for line in told(asked, sources.values(), answer, frozenset(sources), in_all):
        stderr.note(line)


def _refused(call: ToolCall) -> str:
    stderr.note(f"note: {call.name} is refused: --allow {call.name} allows it")
    return "The user refused this call."


def _folder(name: str) -> Library:
    stderr.status(f"reading {name}")
    library = read_now(name)
    stderr.clear_status()
    for fault in library.faults:
        stderr.note(f"note: {fault}")
    return library


def _grammar(schema: Path | None, grammar: Path | None) -> Grammar | None:
    """What the answer must match, None if it may be anything."""
    if schema is not None and grammar is not None:
        raise UsageError("--schema and --grammar contradict each other", "an answer matches one")
    if schema is not None:
        return read_schema(schema)
    return read_grammar(grammar) if grammar is not None else None


def _note_limits(session: Session, prompt: Prompt, request: Request) -> None:
    drafting = session.drafting
    if drafting.missing and drafting.requested != draft_spec.OFF:
        effect = "drafting continues without one" if drafting.handles else "drafting is off"
        stderr.note(f"note: {effect}: {drafting.missing}")
    rule = request.settings.lossy_in_effect
    thinks = request.conversation.think != THINK_AUTO or request.options.think_budget
    if thinks and not offers_thinking(session.model.tokenizer.chat_template or ""):
        stderr.note("note: this model has no thinking mode")
    for note in (*session.notes, *drafting.notes, prompt.note, rule.warning if rule else ""):
        if note:
            stderr.note(f"note: {note}")
