"""Mapping errors of the client, the network and the disk to DownloadError."""

import errno
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from backends.base import DownloadError, HubUnreachableError, SpecchatError
from models.byte_sizes import size_text
from models.hub.client import hub_client
from models.hub.connection import Answer, CutError
from models.hub.hub_settings import HubSettings

_RESUMES = "Try again later; a partial download is resumed."
_LONGEST_TEXT = 300
_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
_SECONDS = re.compile(r"[0-9]{1,5}")


@contextmanager
def mapped_errors(repository: str, settings: HubSettings) -> Generator[None]:
    """Turn any exception of the client, the network or the disk into a DownloadError.

    Raises:
        DownloadError: in place of any other exception.
    """
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
    except (
        HTTPError,
        InvalidURL,
        OverflowError,
        ValueError,
    ) as error:  # OverflowError: a port of 30 digits
        raise DownloadError(
            f"{settings.endpoint} gave an invalid answer",
            shorten(str(error)) or type(error).__name__,
            "Is HF_ENDPOINT right, and no sign-in page of a network in between?",
        ) from error


def shorten(text: str) -> str:
    """Foreign text, shortened to fit a message."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def disk_fault(error: OSError, settings: HubSettings) -> DownloadError:
    """Error for a file that cannot be written."""
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
        return _too_many(answer.headers.get("Retry-After", ""), settings)
    return DownloadError(
        f"{settings.endpoint} has trouble", f"it answers {status}", _RESUMES if status > 499 else ""
    )


def _unreachable(error: Exception, settings: HubSettings) -> HubUnreachableError:
    timed_out = "Timeout" in type(error).__name__
    silent = f"it was silent for {settings.timeout:g} seconds"
    told = _ERROR_NUMBER.sub("", shorten(str(error)))
    why = silent if timed_out else told or type(error).__name__
    return HubUnreachableError(f"{settings.endpoint} cannot be reached", why, _RESUMES)


def _too_many(wait: str, settings: HubSettings) -> DownloadError:
    when = f"in {wait} seconds" if _SECONDS.fullmatch(wait) else "in some minutes"
    return DownloadError(
        f"{settings.endpoint} received too many requests from here",
        "it answers 429",
        f"Try again {when}; a partial download is resumed. With HF_TOKEN set the limit is higher.",
    )
