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
from app.cli.session import open_answerer, read_all, stats_line
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import ended_by
from app.cli.terminal.process import EXIT_DONE, EXIT_INTERRUPTED, exit_code
from app.cli.terminal.text_input import LineDroppedError, TypedLines, piped_lines, read_messages
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Asked, Libraries, folder_path
from app.dialogue.tree import Turn
from app.engine.answerer import Answerer, loaded_of
from app.engine.reply import Reply, Request
from app.engine.status import where_it_runs
from app.loading.session_options import SessionOptions
from app.loading.streaming import AgreedModels, StreamOfferError
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.catalogue import BY_NAME, CHAT_KEYS, Value, known, parsed
from app.tools.toolbox import for_server
from app.wording import counted
from backends.base import SpecchatError, UsageError
from backends.chat.message import Message, ToolCall
from decoding.events import FinishReason

_HELP = """\
/new    start over          /stats  figures of the last answer
/help   this list           /quit   leave (also Ctrl-D)
/set NAME VALUE             such as /set temperature 0.2; without a value: the default
/folder FOLDER              answer with the files of a folder; without one: no longer
/read all                   read all files in parts, and answer the last question from that
@NAME in a message adds a file, @FOLDER/ or @src/**/*.py all of them or what fits.
To send several lines, put them between two lines of three double quotes.
Ctrl-C stops an answer; its text so far is kept."""


@options.with_options(*options.SESSION, *options.ANSWER)
def chat(
    context: typer.Context, folder: options.Folder = None, allow: options.Allow = None
) -> None:
    """Talk line by line; nothing on the screen is ever rewritten."""
    system, answering = option_values.answer_options(context)
    session_options = option_values.session_options(context)
    own = folder_path(folder) if folder else ""
    session = _opened(session_options)
    try:
        allowed = " ".join(allow or [])
        with closing(_Talk(session, session_options, system, answering, own, allowed)) as talk:
            if sys.stdin.isatty():
                stderr.note(talk.greeting())
            talk.warn()
            code = talk.run()
    finally:
        session.close()
    raise typer.Exit(code)


class _Talk:
    def __init__(
        self,
        session: Answerer,
        options: SessionOptions,
        system: str,
        answering: Answering,
        folder: str,
        allowed: str,
    ) -> None:
        self._session, self._loaded = session, loaded_of(session)
        self._dialogue, self._libraries = Dialogue(None), Libraries()
        self._dialogue.folder = folder
        self._questions: list[Turn] = []
        """Those of the conversation, with what they were sent along with."""
        self._notes: dict[str, str] = {}
        """As read_all keeps them."""
        self._system = system
        self._initial = self._answering = answering
        self._own: dict[str, Value] = {}
        """Values set with /set."""
        self._conversation = Conversation(system)
        self._last_warning = ""
        self._last_stats = "no answer yet"
        self._told_shortage = ""
        self._calling = Calling(self._roots, self._ask_about, offline=options.offline)
        self._allowed = self._calling.allowed = allowed

    def close(self) -> None:
        self._calling.close()
        self._libraries.close()

    def _roots(self) -> list[Path]:
        return [Path(self._dialogue.folder)] if self._dialogue.folder else []

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
        loaded, info = self._loaded, self._loaded.info
        draft = ", ".join(loaded.drafters) or "off"
        reason = f" ({loaded.missing})" if loaded.missing else ""
        drafting = "drafting by the server" if loaded.is_remote else f"drafting {draft}{reason}"
        lines = [
            f"{info.name} · {where_it_runs(info)} · context {loaded.context_size:,} · {drafting}",
            *loaded.notes,
            "Type a message and press Enter. Ctrl-C stops an answer; /help lists commands.",
        ]
        if loaded.name == "demo" and not loaded.is_remote:
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
            self._conversation.turns.clear()
            self._calling.allowed = self._allowed
            self._questions.clear()
            self._notes.clear()
            self._last_stats = "no answer yet"
            stderr.note("A new chat.")
        elif command == "/stats":
            stderr.note(self._last_stats)
        elif first == "/folder":
            wanted = command.removeprefix(first).strip()
            self._dialogue.folder = "" if wanted in ("", "off") else folder_path(wanted)
            stderr.note(f"folder: {self._dialogue.folder or 'none'}")
        elif command == "/read all":
            self._read_all()
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
        """Answer one message with the files that it names."""
        files, faults = read_files(message)
        stderr.status("reading files")
        found, told = self._libraries.found(self._asked(message, files), math.inf)
        stderr.clear_status()
        stderr.remarks(*(f"{one}: the message goes without it" for one in faults), *told)
        self._answer(message, found)

    def _asked(self, message: str, files: tuple[Attachment, ...] = ()) -> Asked:
        n_ctx = self._loaded.context_size
        return Asked(self._dialogue, message, files, tuple(self._questions), n_ctx)

    def _read_all(self) -> None:
        """Answer the last question once more, from all there is; a stop keeps the notes so far."""
        turns = self._conversation.turns
        at = max((at for at, one in enumerate(turns) if one.role == "user"), default=None)
        if at is None:
            raise UsageError("there is no question yet", "", "Ask it, then /read all.")
        question, texts = self._questions[-1], self._libraries.all_of(self._asked(""), math.inf)
        alone = Conversation(self._conversation.system, [Message("user", question.text)])
        found, is_all = read_all(self._session, self._request(alone), texts, self._notes)
        if not is_all:
            stderr.note("/read all goes on")
            if _must_end():
                raise KeyboardInterrupt
            return
        before = turns[at:]
        del turns[at:]
        try:
            self._answer(question.text, found)
        finally:
            if self._questions[-1] is question:  # there is no answer
                self._conversation.turns += before
            else:
                self._questions.remove(question)

    def _request(self, conversation: Conversation) -> Request:
        answering = self._answering
        conversation.think = answering.think
        return Request(
            conversation,
            answering.sampling,
            answering.max_tokens,
            options=ReplyOptions(think_budget=answering.think_budget),
            documents=self._libraries.documents,
        )

    def _answer(self, message: str, attachments: tuple[Attachment, ...]) -> None:
        """Answer a message; if that fails, the conversation is unchanged."""
        session, conversation, calling = self._session, self._conversation, self._calling
        calling.chosen = self._answering.tools
        reply = Reply(calling.offered(self._request(conversation)))
        conversation.add("user", in_full(message, attachments))
        try:
            prompt, dropped = session.prompt(reply.request)
        except SpecchatError:
            conversation.turns.pop()
            raise
        if dropped:
            gone = sum(turn.role == "user" for turn in conversation.turns[:dropped])
            del conversation.turns[:dropped]
            del self._questions[:gone]
            oldest = counted(dropped, "message")
            stderr.note(f"note: the context is full; left out: the oldest {oldest}")
        stderr.remarks(prompt.note)
        try:
            for each in calling.streamed(session, reply, prompt, says=True):
                reply, conversation.turns = each, each.request.conversation.turns
        finally:
            # A partial answer stays in the conversation; a question without an answer does not.
            stderr.clear_status()
            if reply.text:
                conversation.add("assistant", reply.text)
                self._questions.append(Turn("user", message, attachments=attachments))
            elif conversation.turns[-1].role == "user":
                conversation.turns.pop()
            self._last_stats = stats_line(session, reply)
        stdout.write("\n")
        self._tell_sources(attachments, reply.text)
        self._tell_shortage()
        if sys.stderr.isatty() or reply.finish_reason is FinishReason.CANCELLED:
            stderr.note(self._last_stats)
        if reply.finish_reason is FinishReason.CANCELLED and _must_end():
            raise KeyboardInterrupt

    def _tell_sources(self, attachments: Iterable[Attachment], answer: str) -> None:
        read = sources_of(attachments if answer else ()).values()
        known = sources_of(one for turn in self._questions for one in turn.attachments)
        for line in told(read, answer, frozenset(known), self._libraries.searched(read)):
            stderr.note(line)

    def _tell_shortage(self) -> None:
        """Say once what the model lost to other programs."""
        if (shortage := self._session.shortage) != self._told_shortage:
            stderr.remarks(shortage)
        self._told_shortage = shortage


def _opened(options: SessionOptions) -> Answerer:
    """Open a session; whether a model that does not fit streams is asked once, on a terminal."""
    try:
        return open_answerer(options)
    except StreamOfferError as offer:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        stderr.note(f"{offer.summary}.\n{offer.outlook.question}")
        stderr.note("y = yes, for this model from now on; anything else = no")
        answer = next(iter(TypedLines()), "")  # the end of the input is a no
        if answer.strip().lower() not in ("y", "yes"):
            raise
        AgreedModels(Paths.of_this_user().agreed_models).add(offer.path)
        return open_answerer(options)


def _must_end() -> bool:
    """Whether stopping an answer also ends the conversation."""
    return ended_by() != 0 or not sys.stdin.isatty()
