"""An encrypted hub: never left for an open connection, and bounded in time like an open one."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import DownloadError, HubUnreachableError
from models.hub import DownloadJob, DownloadRequest, HubSettings
from scripts.hostile_hub.server import CONTENT, REPOSITORY, HostileHub, Wire, serving

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        " -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", made], check=True, capture_output=True
    )
    return made, key


@pytest.fixture
def tls_hub(
    certificate: tuple[Path, Path], settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostileHub]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    hub = HostileHub(settings.cache.parent, settings.cache, tls=tls)
    with serving(hub):
        yield hub


def _pull(hub: HostileHub, settings: HubSettings, window: float = 60.0) -> Path:
    patience = replace(settings, endpoint=hub.endpoint, window=window, window_bytes=1000)
    return DownloadJob(DownloadRequest(REPOSITORY), patience).result().path


def test_an_open_connection_is_not_followed(tls_hub: HostileHub, settings: HubSettings) -> None:
    with pytest.raises(DownloadError, match="an address that cannot be used"):
        _pull(tls_hub, settings)
    assert tls_hub.asked == 2


def test_an_encrypted_file_comes(tls_hub: HostileHub, settings: HubSettings) -> None:
    tls_hub.on_resolve = lambda wire: wire.answer(200, CONTENT)
    assert _pull(tls_hub, settings).read_bytes() == CONTENT


@pytest.mark.parametrize("is_body", [False, True])
def test_an_encrypted_trickle_ends(
    tls_hub: HostileHub, settings: HubSettings, is_body: bool
) -> None:
    def trickle(wire: Wire) -> None:
        if is_body:
            wire.head(200, {"Content-Length": str(len(CONTENT))})
        else:
            wire.send(b"HTTP/1.1 200 OK\r\nX-A: ")
        wire.trickle([b"a"] * 1000)

    tls_hub.on_listing = trickle
    with pytest.raises(HubUnreachableError, match=r"less than 1\.0 kB in 0\.5 seconds"):
        _pull(tls_hub, settings, window=0.5)
