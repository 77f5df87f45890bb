"""Opens a model on another machine: its vocabulary is brought here, its weights are not."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends.base import ModelError
from backends.base.safe_files import write_whole
from backends.remote.model import RemoteModel
from backends.remote.verifying_server import ServedModel, VerifyingServer, reaching


@contextmanager
def remote_model(
    url: str, key: str, paths: Paths, notify: Callable[[str], None]
) -> Generator[RemoteModel]:
    """The model of a specchat that verifies drafts, as long as the block lasts.

    url: of the server, without a dialect's path. key: "" for none.

    Raises:
        ModelError: the server cannot be reached, or verifies no drafts.
        UsageError: it wants another key.
    """
    with closing(VerifyingServer(url, key)) as server:
        with reaching(url):
            served = server.model()
            path = _vocabulary(server, served, paths, notify)
        with CheckedLoader(paths, notify).vocabulary(path) as vocabulary:
            tokenizer = vocabulary.tokenizer
            if tokenizer.n_vocab != served.n_vocab:
                path.unlink(missing_ok=True)
                raise ModelError(f"{url} does not know its model", "its vocabulary is another one")
            host = urlsplit(url).hostname or url
            with closing(RemoteModel(server, served, tokenizer, path, host)) as model:
                yield model


def _vocabulary(
    server: VerifyingServer, served: ServedModel, paths: Paths, notify: Callable[[str], None]
) -> Path:
    """The file of a model's vocabulary, which is kept: its name is the model's identity."""
    path = paths.vocabularies / f"{served.model}.gguf"
    if not path.exists():
        notify(f"getting the vocabulary of {served.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, server.vocabulary())
        except OSError as error:
            raise ModelError(f"cannot write {path}", error.strerror or str(error)) from error
    return path
