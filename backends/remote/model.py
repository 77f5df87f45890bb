"""A model on another machine, with its vocabulary here: tokens are known here, logits are not."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base import (
    DeviceRow,
    Drawn,
    Listener,
    Logits,
    ModelError,
    ModelInfo,
    Rollback,
    Tokenizer,
    UsageError,
    Warping,
    check_room,
    check_truncation,
)
from backends.base.line_context import LineContext
from backends.remote.verifying_server import (
    LostError,
    Opened,
    Passed,
    ServedModel,
    VerifyingServer,
    reaching,
)

_CERTAIN = Warping(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)


class RemoteContext(LineContext):
    """Tokens that a server's context holds as far as it is told: with the next pass.

    Where the server has lost them, or cannot go back, they are sent again. It is its own device:
    what verifies there.
    """

    keeps_rows = can_roll_back = True
    kv_bytes_per_token = 0
    tree_refusal = "is on another machine, where lines alone are verified"
    not_copied = "it is on another machine"

    def __init__(
        self,
        server: VerifyingServer,
        served: ServedModel,
        opened: Opened,
        on_close: Callable[["RemoteContext"], None],
    ) -> None:
        self._server, self._served, self._on_close = server, served, on_close
        self._name = opened.context
        """That the server calls it by; "" where it is to be opened again."""
        self._agreed = 0
        """The first tokens that the server's context holds."""
        self.n_ctx, self.n_chunk = opened.n_ctx, opened.n_chunk
        self.max_logits, self.max_rollback = opened.max_logits, opened.max_rollback
        self.tokens = []
        self.device_sampling = self

    def truncate(self, length: int) -> None:
        check_truncation(length, self.length)
        del self.tokens[length:]
        self._agreed = min(self._agreed, length)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        if n_logits:  # a pass takes as long as one that verifies so many, but the rows stay there
            last = len(tokens) - n_logits + 1
            self.verify(tokens[:last], tokens[last:], None, _CERTAIN, np.ones(n_logits))
        else:
            self._run(tokens)
        return np.empty((0, 0), np.float32)

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: NDArray[np.float64],
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        assert rows is None, "a q_draft is not sent: its tokens count as certain"
        wants = listener is not None
        asked = {"sampling": asdict(warping), "uniforms": uniforms.tolist(), "likeliest": wants}
        passed = self._run(tokens, drafted, **asked)
        if listener is not None:
            listener(np.array(passed.likeliest, np.int64))
        return passed.accepted, passed.token

    def _run(self, tokens: Sequence[int], drafted: Sequence[int] = (), **asked: object) -> Passed:
        """Append tokens and drafted in one pass.

        Raises:
            ModelError: the server is gone, has another model, or failed; nothing was appended.
        """
        check_room(self, len(tokens) + len(drafted))
        with reaching(self._server.url):
            try:
                passed = self._after_all(tokens, drafted, **asked)
            except LostError:
                passed = self._after_all(tokens, drafted, **asked)
        known = max(passed.token, *passed.likeliest, 0) < self._served.n_vocab
        if not known or passed.accepted > len(drafted):
            raise ModelError("the server answered nonsense", "such a token is not in its model")
        self.tokens += [*tokens, *drafted]
        self._agreed = self.length - len(drafted) + passed.accepted
        return passed

    def _after_all(self, tokens: Sequence[int], drafted: Sequence[int], **asked: object) -> Passed:
        """Run a pass after all that is held here, which the server reads first."""
        if not self._name:
            self._name = self._server.open(self._served.model, self.n_ctx).context
            self._agreed = 0
        while self._agreed < self.length:
            piece = self.tokens[self._agreed : self._agreed + self.n_chunk]
            self._pass(tokens=piece)
            self._agreed += len(piece)
        return self._pass(tokens=list(tokens), drafted=list(drafted), **asked)

    def _pass(self, **asked: object) -> Passed:
        name, self._name = self._name, ""  # left if this fails: it may still come, after others
        of = (name, self._served.model, self.n_ctx)
        passed = self._server.run(*of, length=self._agreed, **asked)
        self._name = name
        return passed

    def draft(
        self, tokens: Sequence[int], warping: Warping, uniforms: NDArray[np.float64], n_vocab: int
    ) -> Drawn:
        del tokens, warping, uniforms, n_vocab
        raise ModelError("nothing is drafted there", "the model is on another machine")

    def close(self) -> None:
        name, self._name = self._name, ""
        with suppress(LostError, ModelError):  # it closes idle ones by itself
            if name:
                self._server.close_context(name)
        self._on_close(self)


class RemoteModel:
    """A model of a server.

    path: of its vocabulary here. host: what the server's machine is called.
    """

    shortage = ""

    def __init__(
        self,
        server: VerifyingServer,
        served: ServedModel,
        tokenizer: Tokenizer,
        path: Path,
        host: str,
    ) -> None:
        self.tokenizer = tokenizer
        self._server, self._served = server, served
        self._contexts = set[RemoteContext]()
        self.info = ModelInfo(
            path=path,
            name=served.name,
            architecture=served.architecture,
            quantization=served.quantization,
            parameters=served.parameters,
            weight_bytes=0,
            bytes_read_per_token=served.bytes_read_per_token,
            n_vocab=served.n_vocab,
            n_layers=served.n_layers,
            context_limit=served.n_ctx,
            rollback=Rollback.ANY,
            backend="specchat",
            engine=f"{server.url}: {served.engine}",
            device=f"{host}: {served.device}",
            threads=served.threads,
            image_refusal="is on another machine, which is sent text alone",
            host=host,
        )

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> RemoteContext:
        del drafts, sequences  # as the server has them
        if n_ctx > self.info.context_limit:
            raise UsageError(
                f"a context of {n_ctx:,} tokens is out of range",
                f"that of the server has {self.info.context_limit:,}",
                f"Use --ctx {self.info.context_limit} or less, or start the server with more.",
            )
        with reaching(self._server.url):
            opened = self._server.open(self._served.model, n_ctx)
        context = RemoteContext(self._server, self._served, opened, self._contexts.discard)
        self._contexts.add(context)
        return context

    def close(self) -> None:
        for context in list(self._contexts):
            context.close()
