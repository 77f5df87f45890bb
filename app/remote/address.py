"""Where a server is, and the key that it wants."""

import os
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from backends.base import UsageError
from backends.base.safe_files import explained, open_regular, text_of

REMOTE_KEY = "SPECCHAT_REMOTE_KEY"
"""Variable that holds the key; it is no setting, so that no file of ours repeats it."""

_MOST_KEY = 4096
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL without a slash at its end, such as http://127.0.0.1:8080/v1, and the key.

    key: "" for none; no text of ours shows it.
    """

    url: str
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str | None, key_file: str | None, *, is_offline: bool = False) -> Self:
        """The address that options name; the variable's key comes before the file's.

        Raises:
            UsageError: there is no URL or no usable one, the key cannot be read, or no server is
                to be asked.
        """
        if is_offline:
            raise UsageError("no server is asked", "specchat is offline (--offline, or a setting)")
        if not url:
            remedy = "Give its address, such as --url http://127.0.0.1:8080/v1"
            raise UsageError("--backend remote needs a server", "", remedy)
        key, what = os.environ.get(REMOTE_KEY, "").strip(), f"{REMOTE_KEY} cannot be used"
        if not key and key_file:
            what = f"--remote-key-file {key_file} cannot be used"
            key = read_line(Path(key_file), what, is_private=True)
            if not key:
                raise UsageError(what, "it is empty")
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(what, "a key is one word of ASCII characters")
        return cls(_base(url), key)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def warning(self) -> str:
        """What others can do on the way, "" if nothing."""
        if self.url.startswith("https:") or is_loopback(self.host):
            return ""
        also = " and use its key" if self.key else ""
        return f"{self.url} is not encrypted: whoever is on the way can read all that is said{also}"


def _base(url: str) -> str:
    what = f"--url {url.rpartition('@')[2]} cannot be used"
    try:
        parts = urlsplit(url)
        has_login, _ = "@" in parts.netloc, parts.port
    except ValueError as error:
        raise UsageError(what, str(error)) from error
    if has_login:
        raise UsageError(
            what, "a URL with a name or key in it is shown to others", f"Set {REMOTE_KEY}."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(what, "it is no http or https address", "Such as http://127.0.0.1:8080/v1")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def read_line(path: Path, what: str, *, is_private: bool = False) -> str:
    """The text of a file that holds one line, such as a key; what: the beginning of the error.

    Raises:
        UsageError: the file cannot be read, or is private and others can read it too.
    """
    with explained(what), open_regular(path) as file:
        if is_private and os.name != "nt" and os.fstat(file.fileno()).st_mode & _OTHERS:
            raise UsageError(what, "others can read it", f"chmod 600 {path}")
        return text_of(file.read(_MOST_KEY)).strip()


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as, None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    address = ip_of(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)
