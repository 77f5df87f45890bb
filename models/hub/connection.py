"""HTTP requests to the hub, with bounds on time and redirects, and their errors in words."""

import contextlib
import errno
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from backends.base import DownloadError, HubUnreachableError, SpecchatError
from models.byte_sizes import size_text
from models.hub.progress import HubSettings

if TYPE_CHECKING:
    from httpx2 import Request, Response

_QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
}


def hub_client() -> ModuleType:
    """Import huggingface_hub, which reads these variables when first imported."""
    os.environ.update(_QUIET)
    import huggingface_hub

    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    return huggingface_hub


_MOST_REDIRECTS = 5


class CutError(Exception):
    """A response that ended early, or was abandoned as too slow."""


class Connection:
    """HTTP client of one download, a context manager for one thread.

    Only the hub receives the token: the client drops it on redirects to another origin.
    """

    def __init__(self, settings: HubSettings) -> None:
        hub_client()
        from httpx2 import Client
        from huggingface_hub import utils

        hub_utils: Any = utils
        # Compressed content could expand without bound, and ranges would not count its bytes.
        identity = {"Accept-Encoding": "identity"}
        self._headers: dict[str, str] = {**hub_utils.build_hf_headers(), **identity}
        self._client = Client(timeout=settings.timeout)
        self._settings = settings
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._client.close()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> "Generator[Answer]":
        """Send a request and follow redirects; the body is not read yet.

        Raises:
            CutError: the response does not arrive, or too slowly.
            TransportError: of httpx2, the connection failed.
            ValueError: there are too many or unsafe redirects, or the response is compressed.
        """
        request = self._client.build_request(
            "GET",
            url,
            headers={**self._headers, **(headers or {})},
            extensions={"trace": self._remember_socket},
        )
        with _Pace(self._settings, self._sockets) as pace:
            with pace.guarded():
                response = self._final_response(request)
            with closing(response):
                encoding = response.headers.get("Content-Encoding", "identity")
                if response.is_success and encoding != "identity":
                    raise ValueError("it is compressed, which was not requested")
                yield Answer(response.status_code, response.headers, response, pace)

    def _final_response(self, request: "Request") -> "Response":
        """Follow redirects without reading their bodies, as the client would without limit."""
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._client.send(request, stream=True)
            if not response.has_redirect_location:
                return response
            response.close()
            following = response.next_request
            scheme = following.url.scheme if following else ""
            # It stays on HTTP(S), and does not go back from HTTPS.
            if following is None or not (
                scheme == "https" or scheme == request.url.scheme == "http"
            ):
                raise ValueError("it redirects to an address that cannot be used")
            request = following
        raise ValueError(f"it redirects more than {_MOST_REDIRECTS} times")

    def _remember_socket(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened = info["return_value"].get_extra_info("socket")
            if isinstance(opened, socket.socket):
                self._sockets.add(opened)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    response: "Response"
    pace: "_Pace"

    def chunks(self) -> Iterator[bytes]:
        """Chunks of the body as they arrive.

        Raises:
            CutError: they arrive too slowly.
            TransportError: of httpx2, the connection ended early.
        """
        with self.pace.guarded():
            for chunk in self.response.iter_raw():
                self.pace.count(len(chunk))
                yield chunk


class _Pace:
    """Abandons a response that delivers too little within a time window.

    A timeout bounds only one read, so that single bytes, in headers too, could go on for ever. A
    thread shuts the sockets down instead, which ends a blocked read.
    """

    def __init__(self, settings: HubSettings, sockets: "WeakSet[socket.socket]") -> None:
        self._settings, self._sockets = settings, sockets
        self._until = time.monotonic() + settings.window
        self._received = 0
        self._over = Event()
        self._abandoned = False

    def __enter__(self) -> Self:
        Thread(target=self._watch, name="pace of a download", daemon=True).start()
        return self

    def __exit__(self, *_reason: object) -> None:
        self._over.set()

    def count(self, size: int) -> None:
        """Count received bytes; enough of them start the next window."""
        self._received += size
        if self._received >= self._settings.window_bytes:
            self._received = 0
            self._until = time.monotonic() + self._settings.window

    @contextmanager
    def guarded(self) -> Generator[None]:
        from httpx2 import TransportError

        try:
            yield
        except TransportError as error:
            if not self._abandoned:
                raise
            raise self._too_slow() from error
        if self._abandoned:
            raise self._too_slow()

    def _too_slow(self) -> CutError:
        least, window = size_text(self._settings.window_bytes), self._settings.window
        return CutError(f"it sent less than {least} in {window:g} seconds")

    def _watch(self) -> None:
        while not self._over.wait(max(self._until - time.monotonic(), 0.0)):
            if time.monotonic() < self._until:
                continue
            self._abandoned = True
            for opened in list(self._sockets):
                with contextlib.suppress(OSError):
                    # Not the method of a TLS socket, which would also change state the reader uses.
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)
            return


_RESUMES = "Try again later; a partial download is resumed."
_LONGEST_TEXT = 300
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_SECONDS = re.compile(r"[0-9]{1,5}")


@contextmanager
def mapped_errors(repository: str, settings: HubSettings) -> Generator[None]:
    """Turn any exception of the client, the network or the disk into a DownloadError."""
    if settings.offline:
        raise HubUnreachableError(
            f"{repository} is not downloaded", "specchat is offline (--offline, or a setting)"
        )
    hub_client()
    from httpx2 import HTTPError, InvalidURL, TransportError
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except SpecchatError:
        raise
    except (CutError, TransportError) as error:
        raise _unreachable(error, settings) from error
    except HFValidationError as error:
        raise DownloadError(
            f"{repository!r} cannot be a repository", "it has the form organization/name"
        ) from error
    except OSError as error:
        raise disk_fault(error, settings) from error
    except (HTTPError, InvalidURL, OverflowError, ValueError) as error:  # a port of 30 digits
        raise DownloadError(
            f"{settings.endpoint} gave an invalid answer",
            shorten(str(error)) or type(error).__name__,
            "Is HF_ENDPOINT right, and no sign-in page of a network in between?",
        ) from error


def shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def disk_fault(error: OSError, settings: HubSettings) -> DownloadError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = free_bytes(settings)
        return DownloadError(
            "the disk is full",
            f"{size_text(free)} are free below {settings.cache}",
            "Free some space and try again; a partial download is resumed. "
            "HF_HOME moves the cache to another disk.",
        )
    return DownloadError(f"cannot write below {settings.cache}", error.strerror or str(error))


def free_bytes(settings: HubSettings) -> int:
    """Free space on the disk of the cache, whose folder need not exist yet."""
    folder = settings.cache
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def refused(answer: Answer, repository: str, settings: HubSettings) -> DownloadError:
    """Error for an unexpected status of a response, whose text is not shown."""
    status = answer.status
    page = f"{settings.endpoint}/{repository}"
    if answer.headers.get("X-Error-Code") == "GatedRepo":
        return DownloadError(
            f"{repository} is gated",
            "its owner requires its conditions to be accepted first",
            f"Accept them at {page}, then set HF_TOKEN to a token of that account.",
        )
    if status == 401 and "invalid" in answer.headers.get("X-Error-Message", "").lower():
        return DownloadError(
            "the hub does not know your token",
            "it is mistyped, expired or withdrawn",
            "Set HF_TOKEN to a new one. Models that are neither gated nor private need none.",
        )
    if status in (401, 403):
        return DownloadError(
            f"{repository} cannot be read",
            f"the hub answers {status}: it does not exist, is private, or is gated",
            f"Check its name. If {page} opens for you when you are signed in, accept any conditions"
            " there and set HF_TOKEN to a token of that account.",
        )
    if status == 404:
        return DownloadError(f"the hub has no {repository}", "", "Check its name.")
    if status == 429:
        wait = answer.headers.get("Retry-After", "")
        when = f"in {wait} seconds" if _SECONDS.fullmatch(wait) else "in some minutes"
        return DownloadError(
            f"{settings.endpoint} received too many requests from here",
            "it answers 429",
            f"Try again {when}; a partial download is resumed. "
            "With HF_TOKEN set the limit is higher.",
        )
    return DownloadError(
        f"{settings.endpoint} has trouble", f"it answers {status}", _RESUMES if status > 499 else ""
    )


def _unreachable(error: Exception, settings: HubSettings) -> HubUnreachableError:
    why = _ERROR_NUMBER.sub("", shorten(str(error))) or type(error).__name__
    if "Timeout" in type(error).__name__:
        why = f"it was silent for {settings.timeout:g} seconds"
    return HubUnreachableError(f"{settings.endpoint} cannot be reached", why, _RESUMES)
