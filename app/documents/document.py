"""The text of a file, of whatever kind."""

import atexit
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from app.documents.encodings import decoded
from backends.base.safe_files import NotTextError, TooLargeError, read_bounded

if TYPE_CHECKING:
    from backends.base.watched_process import WatchedProcess

MOST_BYTES = 50 << 20
MOST_CHARACTERS = 4_000_000
"""Of a file's text: more than the context of a model holds."""

SECONDS, MOST_MEMORY = 10.0, 500_000_000
"""What a file may cost to read, beside the start of the process that reads it."""

_START_SECONDS = 60.0
_IDLE_SECONDS = 30.0
"""That process then gives its memory back."""

_MARKS = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How PDF files, archives of parts (docx, odt, epub...) and files of old Office begin."""

_ENDINGS = (".pdf", ".html", ".htm", ".xhtml")


@dataclass(frozen=True, slots=True)
class Document:
    """A file as the model reads it.

    text: each page but the last ends with a form feed. pages: 0 where it has none.
    """

    text: str
    pages: int = 0


def read(path: Path) -> Document:
    """The text of a file; one that takes a process to read is read once, until it changes.

    Raises:
        NotTextError: it has no text that can be read; its fault says why.
        TooLargeError, OSError: it cannot be read.
    """
    data = read_bounded(path, MOST_BYTES)
    if _is_plain(data, path.name):
        return read_bytes(data, path.name)
    state = path.stat()
    with _READING:  # who asks for the same file meanwhile waits for it
        found = _of_state(path.absolute(), state.st_mtime_ns, state.st_size, state.st_ino)
    if isinstance(found, NotTextError):
        raise found
    return found


def read_bytes(data: bytes, name: str = "") -> Document:
    """As read, of a file that came another way. name: its ending tells HTML from text.

    Raises:
        NotTextError, TooLargeError: as for read.
    """
    if len(data) > MOST_BYTES:
        raise TooLargeError(Path(name), MOST_BYTES)
    if not _is_plain(data, name):
        answer = _CHILD.ask(data, name)
        return Document(answer["text"], answer["pages"])
    text = decoded(data)
    if len(text) > MOST_CHARACTERS:
        raise NotTextError(f"has over {MOST_CHARACTERS // 10**6} million characters", "")
    return Document(text)


def page_picture(path: Path, page: int) -> bytes:
    """A page of a PDF file, from 1, as a PNG picture with 1,500 pixels on its longer side.

    Raises:
        NotTextError, TooLargeError, OSError: as for read.
    """
    return bytes.fromhex(_CHILD.ask(read_bounded(path, MOST_BYTES), path.name, page)["picture"])


def fault_of(error: Exception) -> str:
    """Why a file cannot be read, in words that follow its name."""
    if isinstance(error, NotTextError):
        return error.fault
    if isinstance(error, TooLargeError):
        return f"is larger than {MOST_BYTES >> 20} MB"
    return f"cannot be read: {getattr(error, 'strerror', '') or error}"


_READING = Lock()


@lru_cache(32)
def _of_state(path: Path, *_state: int) -> Document | NotTextError:
    """A file that has this state. Faults are kept too: one that hangs its reader does so once."""
    try:
        return read_bytes(read_bounded(path, MOST_BYTES), path.name)
    except NotTextError as error:
        return error


def _is_plain(data: bytes, name: str) -> bool:
    return not (data.startswith(_MARKS) or name.lower().endswith(_ENDINGS))


class _Child:
    """Reads files in a child process, one after the other. One that fails is replaced."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: WatchedProcess | None = None
        self._idle: Timer | None = None
        atexit.register(self._end)  # without the lock: whoever reads is not waited for

    def ask(self, data: bytes, name: str, page: int = 0) -> dict[str, Any]:
        """What the child answers about a file. page: a picture of it is wanted.

        Raises:
            NotTextError: it cannot be read.
        """
        from backends.base.watched_process import StoppedError

        request = {"name": name, "bytes": len(data), "page": page, "characters": MOST_CHARACTERS}
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                process = self._started()
                process.send(request, data)
                answer: dict[str, Any] = json.loads(process.line(SECONDS, MOST_MEMORY))
            except (OSError, StoppedError, ValueError) as error:
                self._end()
                why, _, details = str(error).partition(": ")
                raise NotTextError(f"cannot be read: {why}", details) from error
            except BaseException:  # Ctrl-C; its answer is not to be taken for the next one
                self._end()
                raise
            if answer.get("ends"):
                self._end()
            self._idle = Timer(_IDLE_SECONDS, self.close)
            self._idle.daemon = True
            self._idle.start()
        if "error" in answer:
            raise NotTextError(answer["error"], answer["why"])
        return answer

    def _started(self) -> "WatchedProcess":
        from backends.base.watched_process import WatchedProcess

        if self._process is None:
            self._process = WatchedProcess("app.documents.worker")
            self._process.send({"memory": MOST_MEMORY})
            self._process.line(_START_SECONDS, MOST_MEMORY)
        return self._process

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


_CHILD = _Child()
