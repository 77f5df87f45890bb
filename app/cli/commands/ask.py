"""`specchat ask`: one question, one answer, for scripts."""

import math
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from app.chat.attachments import Attachment, in_full
from app.chat.conversation import Conversation, ReplyOptions
from app.chat.sources import sources_of, told
from app.cli import option_values, options
from app.cli.calling import Calling
from app.cli.output import Json, Output, write_object
from app.cli.session import open_answerer, stats_line
from app.cli.session import read_all as read_all_of
from app.cli.terminal import stderr, stdout, text_input
from app.cli.terminal.process import EXIT_INTERRUPTED
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked, Libraries, folder_path
from app.drafting import draft_spec
from app.engine.answerer import Answerer, loaded_of, report_of
from app.engine.reply import Reply, Request
from app.engine.status import Loaded
from app.structured_output import read_grammar, read_schema
from app.tools.toolbox import is_allowed
from backends.base import ModelError, UsageError
from backends.chat.chat_template import Prompt
from backends.chat.message import Message, ToolCall
from backends.chat.reply_form import THINK_AUTO
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
    read_all: Annotated[
        bool,
        typer.Option(
            "--read-all",
            help="Read all files in parts if they do not fit; Ctrl-C prints the notes.",
        ),
    ] = False,
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
    allow: options.Allow = None,
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
    files = tuple(map(text_input.attached, file or []))
    about, libraries = Dialogue(None), Libraries()
    about.folder = folder_path(folder) if folder else ""
    asked = Asked(about, text, files)
    libraries.state(asked)  # folders are read while the model is loaded
    known = ReplyOptions(
        grammar=must_match,
        prediction=text_input.predicted(predict) if predict else "",
        think_budget=answering.think_budget,
    )
    streaming, failure = not (json or no_stream), None
    session = open_answerer(session_options)
    asked = replace(asked, n_ctx=loaded_of(session).context_size)
    request = Request(
        Conversation(system, [Message("user", text)], answering.think),
        answering.sampling,
        answering.max_tokens,
        options=known,
    )
    roots = [Path(folder)] if folder else [path.absolute().parent for path in file or []]
    calling = Calling(lambda: roots, _refused, offline=session_options.offline)
    calling.allowed = " ".join(allow or [])
    calling.choose(answering.tools, is_plain=must_match is None and not raw)
    with closing(calling), closing(libraries), closing(session):
        found = _attached(session, libraries, asked, request if read_all else None)
        text, sources = in_full(text, found), sources_of(found)
        request = calling.offered(
            replace(
                request,
                conversation=replace(request.conversation, turns=[Message("user", text)]),
                text=text if raw else None,
                documents=libraries.documents,
            )
        )
        reply = Reply(request)
        question, _ = session.prompt(request)
        _note_limits(loaded_of(session), session_options.draft, question, request, calling.allowed)
        try:
            for each in calling.streamed(session, reply, question, says=streaming):
                reply = each
        except ModelError as error:
            failure = error  # raised once the part before it is printed
        stderr.clear_status()
        if json:
            unread = ["sources"] if libraries.unread else []
            more = {"calls": calling.told, "sources": [asdict(one) for one in sources.values()]}
            more = {one: told for one, told in more.items() if told or one in unread}
            write_object({**report_of(session, reply), **more}, output)
        else:
            rest = "" if streaming else reply.text
            stdout.write(rest if reply.text.endswith("\n") else f"{rest}\n")
            read = sources.values()
            for line in told(read, reply.text, frozenset(sources), libraries.searched(read)):
                stderr.note(line)
            if sys.stderr.isatty():
                stderr.note(stats_line(session, reply))
        _note_cut(reply)
    if failure is not None:
        raise failure
    if reply.finish_reason is FinishReason.CANCELLED:
        raise typer.Exit(EXIT_INTERRUPTED)


def _attached(
    session: Answerer, libraries: Libraries, asked: Asked, read_all: Request | None
) -> tuple[Attachment, ...]:
    """What goes with the question. read_all: the request to answer from all, None for what fits.

    Raises:
        typer.Exit: Ctrl-C stopped the reading; the notes so far are printed.
    """
    if read_all is None:
        found, faults = libraries.found(asked, math.inf)
        stderr.remarks(*faults)
        return found
    texts = libraries.all_of(asked, math.inf)
    found, is_all = read_all_of(session, read_all, texts, {})
    if not is_all:
        stdout.write("".join(f"{one.name}: {one.text}\n\n" for one in found))
        raise typer.Exit(EXIT_INTERRUPTED)
    return (*(one for one in asked.files if one.image), *found)


def _note_cut(reply: Reply) -> None:
    is_cut = reply.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT)
    if is_cut and reply.request.options.grammar is not None:
        stderr.note(
            f"cut off after {reply.statistics.completion_tokens:,} tokens: the answer "
            "is only the beginning of one that matches"
        )


def _refused(call: ToolCall) -> str:
    stderr.note(f"note: {call.name} is refused: --allow {call.name} allows it")
    return "The user refused this call."


def _grammar(schema: Path | None, grammar: Path | None) -> Grammar | None:
    """What the answer must match, None if it may be anything."""
    if schema is not None and grammar is not None:
        raise UsageError("--schema and --grammar contradict each other", "an answer matches one")
    if schema is not None:
        return read_schema(schema)
    return read_grammar(grammar) if grammar is not None else None


def _note_limits(
    loaded: Loaded, requested: str, prompt: Prompt, request: Request, allowed: str
) -> None:
    asking = [one.name for one in request.tools if not is_allowed(one.name, allowed)]
    if asking and not allowed:
        stderr.note(f"note: calls are refused without --allow: {', '.join(asking)}")
    if loaded.missing and requested != draft_spec.OFF:
        effect = "drafting continues without one" if loaded.drafters else "drafting is off"
        stderr.note(f"note: {effect}: {loaded.missing}")
    rule = request.settings.lossy_in_effect
    thinks = request.conversation.think != THINK_AUTO or request.options.think_budget
    if thinks and not (loaded.can_think or loaded.is_remote):
        stderr.note("note: this model has no thinking mode")
    stderr.remarks(*loaded.notes, prompt.note, rule.warning if rule else "")
