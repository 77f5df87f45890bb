"""`specchat chat`: a conversation line by line, append-only, for screen readers and pipes."""

import math
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import typer

from app.chat.attachments import Attachment, in_full
from app.chat.conversation import Conversation, ReplyOptions
from app.chat.named_files import read_files
from app.chat.sources import sources_of, told
from app.cli import option_values, options
from app.cli.calling import Calling
from app.cli.session import open_session, stats_line
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import ended_by
from app.cli.terminal.process import EXIT_DONE, EXIT_INTERRUPTED, exit_code
from app.cli.terminal.text_input import LineDroppedError, TypedLines, piped_lines, read_messages
from app.dialogue.libraries import Libraries, Talk, folder_path, last_number
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.engine.status import where_it_runs
from app.loading.session_options import SessionOptions
from app.loading.streaming import AgreedModels, StreamOfferError
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, CHAT_KEYS, Value, known, parsed
from app.tools.toolbox import for_server
from app.wording import counted
from backends.base import SpecchatError, UsageError
from backends.chat.message import ToolCall
from decoding.events import FinishReason

_HELP = """\
/new    start over          /stats  figures of the last answer
/help   this list           /quit   leave (also Ctrl-D)
/set NAME VALUE             such as /set temperature 0.2; without a value: the default
/folder FOLDER              answer with the files of a folder; without one: no longer
@NAME in a message adds a file, @FOLDER/ or @src/**/*.py all of them or what fits.
To send several lines, put them between two lines of three double quotes.
Ctrl-C stops an answer; its text so far is kept."""


@options.with_options(*options.SESSION, *options.ANSWER)
def chat(context: typer.Context, folder: options.Folder = None) -> None:
    """Talk line by line; nothing on the screen is ever rewritten."""
    system, answering = option_values.answer_options(context)
    session_options = option_values.session_options(context)
    own = folder_path(folder) if folder else ""
    session = _opened(session_options)
    try:
        with closing(_Talk(session, system, answering, own)) as talk:
            if sys.stdin.isatty():
                stderr.note(talk.greeting())
            talk.warn()
            code = talk.run()
    finally:
        session.close()
    raise typer.Exit(code)


class _Talk:
    def __init__(
        self, session: Session, system: str, answering: Answering, folder: str = ""
    ) -> None:
        self._session = session
        self._folder, self._libraries = folder, Libraries(None)
        self._attached: list[tuple[Attachment, ...]] = []
        """What went with each question of the conversation."""
        self._previous = ""
        self._system = system
        self._initial = self._answering = answering
        self._own: dict[str, Value] = {}
        """Values set with /set."""
        self._conversation = Conversation(system)
        self._last_warning = ""
        self._last_stats = "no answer yet"
        self._told_shortage = ""
        self._calling = Calling(self._roots, self._ask_about, offline=session.options.offline)

    def close(self) -> None:
        self._calling.close()
        self._libraries.close()

    def _roots(self) -> list[Path]:
        return [Path(self._folder)] if self._folder else []

    def _ask_about(self, call: ToolCall) -> str:
        """What the model is told of a call that the user refuses; "" for one that is allowed."""
        if sys.stdin.isatty():
            server = for_server(call.name)
            stderr.note("y = yes, t = yes, this tool in this chat, s = yes, this server; else = no")
            typed = next(iter(TypedLines()), "").strip()
            ways = {"y": "", "t": call.name, "s": server}
            if typed.lower() in ways:
                self._calling.allowed += f" {ways[typed.lower()]}"
                return ""
            return f"The user refused this call. {typed}".strip()
        return "The user refused this call."

    def greeting(self) -> str:
        info = self._session.model.info
        drafting = self._session.drafting
        draft = ", ".join(drafting.names) or "off"
        reason = f" ({drafting.missing})" if drafting.missing else ""
        lines = [
            f"{info.path.stem} · {where_it_runs(info)} · "
            f"context {self._session.context.facts.n_ctx:,} · drafting {draft}{reason}",
            *self._session.notes,
            *drafting.notes,
            "Type a message and press Enter. Ctrl-C stops an answer; /help lists commands.",
        ]
        if self._session.reference.name == "demo":
            lines.insert(1, "This bundled model is tiny; use a better one with --model REF.")
        return "\n".join(lines)

    def warn(self) -> None:
        """Warn once about each lossy rule in effect."""
        rule = self._answering.sampling.lossy_in_effect
        if rule is not None and rule.warning != self._last_warning:
            self._last_warning = rule.warning
            stderr.note(f"note: {rule.warning}")

    def run(self) -> int:
        """Read and answer until the input ends; the exit code of the last failed message."""
        code = EXIT_DONE
        interrupted = False
        lines = TypedLines() if sys.stdin.isatty() else piped_lines()
        messages = read_messages(lines)
        while True:
            try:
                message = next(messages, None)
                interrupted = interrupted and message == ""
                if message is None or message in ("/quit", "/exit"):
                    return code
                if message.startswith("/") and "\n" not in message:
                    self._command(message)
                elif message:
                    self._exchange(message)
            except LineDroppedError:
                if _must_end():
                    return EXIT_INTERRUPTED
                messages = read_messages(lines)
            except KeyboardInterrupt:
                if interrupted or _must_end():
                    stderr.note("")
                    return EXIT_INTERRUPTED
                stderr.note("\nPress Ctrl-C again or Ctrl-D to leave.")
                interrupted = True
                messages = read_messages(lines)
            except SpecchatError as error:
                stderr.show_error(error)
                code = exit_code(error)
                messages = read_messages(lines)

    def _command(self, command: str) -> None:
        first, *arguments = command.split(maxsplit=2)
        if command == "/new":
            self._conversation.clear()
            self._calling.allowed = ""
            self._attached.clear()
            self._last_stats = "no answer yet"
            stderr.note("A new chat.")
        elif command == "/stats":
            stderr.note(self._last_stats)
        elif first == "/folder":
            wanted = command.removeprefix(first).strip()
            self._folder = "" if wanted in ("", "off") else folder_path(wanted)
            stderr.note(f"folder: {self._folder or 'none'}")
        elif first == "/set":
            self._set(*arguments)
        else:
            unknown = "" if command == "/help" else f"No command {command}.\n"
            stderr.note(f"{unknown}{_HELP}")

    def _set(self, name: str = "", text: str = "") -> None:
        """Set a key for the next answers, or reset it if the text is empty."""
        names = [key.name for key in CHAT_KEYS]
        if not name:
            example = "Example: /set temperature 0.2"
            raise UsageError("which setting?", ", ".join(names), example)
        key = BY_NAME[known(name, names, f"{name!r} cannot be set here")]
        if text:
            self._own[name] = parsed(key, text)
        else:
            self._own.pop(name, None)
        self._answering = self._initial.changed(self._own)
        self._conversation.system = str(self._own.get("system", self._system))
        stderr.note(f"{key.label}: {text or 'reset'}")
        self.warn()

    def _exchange(self, message: str) -> None:
        """Answer one message; if that fails, the conversation is unchanged."""
        session, conversation, answering = self._session, self._conversation, self._answering
        conversation.think = answering.think
        options = ReplyOptions(think_budget=answering.think_budget)
        calling = self._calling
        calling.chosen = answering.tools
        files, faults = read_files(message)
        for fault in faults:
            stderr.note(f"note: {fault}: the message goes without it")
        attachments = self._found(message, files)
        own = self._libraries.own
        request = Request(
            conversation,
            answering.sampling,
            answering.max_tokens,
            options=options,
            documents=own.texts if own is not None else None,
        )
        reply = Reply(calling.offered(request))
        conversation.add("user", in_full(message, attachments))
        try:
            prompt, dropped = session.prompt(reply.request)
        except SpecchatError:
            conversation.turns.pop()
            raise
        if dropped:
            gone = sum(turn.role == "user" for turn in conversation.turns[:dropped])
            conversation.drop_oldest(dropped)
            del self._attached[:gone]
            oldest = counted(dropped, "message")
            stderr.note(f"note: the context is full; left out: the oldest {oldest}")
        if prompt.note:
            stderr.note(f"note: {prompt.note}")
        try:
            for each in calling.streamed(session, reply, prompt, says=True):
                reply, conversation.turns = each, each.request.conversation.turns
        finally:
            # A partial answer stays in the conversation; a question without an answer does not.
            stderr.clear_status()
            if reply.text:
                conversation.add("assistant", reply.text)
                self._attached.append(attachments)
                self._previous = message
            elif conversation.turns[-1].role == "user":
                conversation.turns.pop()
            self._last_stats = stats_line(session, reply)
        stdout.write("\n")
        self._tell_sources(message, attachments, reply.text)
        self._tell_shortage()
        if sys.stderr.isatty() or reply.finish_reason is FinishReason.CANCELLED:
            stderr.note(self._last_stats)
        if reply.finish_reason is FinishReason.CANCELLED and _must_end():
            raise KeyboardInterrupt

    def _found(self, message: str, files: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
        """What a message is sent along with, once its folders have been read."""
        self._libraries.follow(self._folder)
        if not self._libraries.state(message) and not files:
            return ()
        known = tuple(one for attached in self._attached for one in attached)
        talk = Talk(known, last_number(known), self._previous)
        stderr.status("reading the folder")
        n_ctx = self._session.context.facts.n_ctx
        found, told = self._libraries.found(message, talk, n_ctx, math.inf, files)
        stderr.clear_status()
        for fault in told:
            stderr.note(f"note: {fault}")
        return found

    def _tell_sources(self, message: str, attachments: Iterable[Attachment], answer: str) -> None:
        read = sources_of(attachments if answer else ()).values()
        known = (one for attached in self._attached for one in attached)
        for line in told(message, read, answer, frozenset(sources_of(known))):
            stderr.note(line)

    def _tell_shortage(self) -> None:
        """Say once what the model lost to other programs."""
        shortage = self._session.model.shortage
        if shortage and shortage != self._told_shortage:
            stderr.note(f"note: {shortage}")
        self._told_shortage = shortage


def _opened(options: SessionOptions) -> Session:
    """Open a session; whether a model that does not fit streams is asked once, on a terminal."""
    try:
        return open_session(options)
    except StreamOfferError as offer:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        stderr.note(f"{offer.summary}.\n{offer.outlook.question}")
        stderr.note("y = yes, for this model from now on; anything else = no")
        answer = next(iter(TypedLines()), "")  # the end of the input is a no
        if answer.strip().lower() not in ("y", "yes"):
            raise
        AgreedModels(Paths.of_this_user().agreed_models).add(offer.path)
        return open_session(options)


def _must_end() -> bool:
    """Whether stopping an answer also ends the conversation."""
    return ended_by() != 0 or not sys.stdin.isatty()
