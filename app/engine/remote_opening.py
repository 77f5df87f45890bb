"""Opens a session whose model is on another machine, and whose drafters are here.

The model's vocabulary is brought here, its weights are not.
"""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.drafting import draft_spec
from app.engine.session import Session
from app.engine.session_drafters import Drafting, build
from app.learned.speeds import PlainReplies
from app.loading.checked_loader import CheckedLoader
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from app.remote.address import Address
from backends.base import ModelError
from backends.base.safe_files import explained, write_whole
from backends.chat.chat_template import ChatTemplate
from backends.chat.template_process import TemplateProcess
from backends.engines.backend_selection import forms
from backends.hardware.host import available_memory
from backends.remote.model import RemoteModel
from backends.remote.verifying_server import ServedModel, VerifyingServer, reaching
from models.reference import Reference


def open_verified(options: SessionOptions, paths: Paths, notify: Callable[[str], None]) -> Session:
    """Open a session on the model of a specchat that verifies drafts (app.serve.verifying).

    Raises:
        SpecchatError: an option cannot be met, or the server cannot be used.
        PassStoppedError: opening was stopped.
    """
    started = time.perf_counter()
    address = Address.of(options.url, options.remote_key_file, is_offline=options.offline)
    url = address.url.removesuffix("/v1")
    notify(f"asking {url}")
    with ExitStack() as stack:
        templates = stack.enter_context(closing(TemplateProcess()))
        model = stack.enter_context(_remote_model(url, address.key, paths, notify))
        info = model.info
        reference = Reference(info.name, info.path)
        spec = draft_spec.parse(options.draft, paths, reference, forms(options.backend))
        spec.check(info.name, info.n_layers, info.active_experts)
        n_ctx = options.ctx or min(DEFAULT_CONTEXT, info.context_limit)
        session = Session(
            paths=paths,
            reference=reference,
            model=model,
            context=TargetContext(model, model.open(n_ctx)),
            template=ChatTemplate(model.tokenizer, templates),
            drafting=Drafting(spec.requested),
            bandwidth=None,
            meter=None,
            notes=tuple(filter(None, [address.warning])),
            options=options,
            room=available_memory(),
        )
        session.drafting = build(spec, session.environment(notify))
        speeds = PlainReplies.of(info, paths)
        session.plain_replies = speeds.with_measured(session.drafting.plain_rate or 0.0)
        session.resources = stack.pop_all()
    session.load_seconds = time.perf_counter() - started
    return session


@contextmanager
def _remote_model(
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
        with explained(f"cannot write {path}", ModelError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, server.vocabulary())
    return path
