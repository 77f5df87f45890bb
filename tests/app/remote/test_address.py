"""Where a server is, and the key that it wants."""

from pathlib import Path

import pytest

from app.remote.address import REMOTE_KEY, Address
from backends.base import UsageError

KEY = "sk-very-secret-0123456789"


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1"),
        ("https://example.org/api/v1", "https://example.org/api/v1"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1"),
    ],
)
def test_base_url(typed: str, base: str) -> None:
    assert Address.of(typed, None).url == base


@pytest.mark.parametrize(
    "typed",
    ["", "127.0.0.1:8080", "ftp://host/v1", "http://", "http://host:99999", "http://h/?a=b"],
)
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(UsageError):
        Address.of(typed, None)


def test_key_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        Address.of(f"https://me:{KEY}@example.org/v1", None)
    assert KEY not in str(refused.value)


def test_key_of_the_variable_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "remote.key"
    file.write_text("of-the-file\n")
    file.chmod(0o600)
    assert Address.of("http://localhost", str(file)).key == "of-the-file"
    monkeypatch.setenv(REMOTE_KEY, KEY)
    address = Address.of("http://localhost", str(file))
    assert address.key == KEY
    assert KEY not in repr(address)


@pytest.mark.skipif("os.name == 'nt'", reason="Windows has no such permissions")
def test_file_that_others_can_read(tmp_path: Path) -> None:
    file = tmp_path / "remote.key"
    file.write_text(KEY)
    file.chmod(0o644)
    with pytest.raises(UsageError) as refused:
        Address.of("http://localhost", str(file))
    assert "chmod 600" in refused.value.remedy
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("content", ["", "two words", "ключ", "a\nb"])
def test_what_is_no_key(content: str, tmp_path: Path) -> None:
    file = tmp_path / "remote.key"
    file.write_text(content, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(UsageError):
        Address.of("http://localhost", str(file))


def test_only_plain_http_to_others_is_warned_of() -> None:
    assert not Address.of("http://127.0.0.1:1", None).warning
    assert not Address.of("https://example.org", None).warning
    assert "not encrypted" in Address.of("http://192.168.0.5:8000", None).warning
