"""A model on another machine, with its vocabulary here."""

from pathlib import Path

from backends.base import ModelInfo, Rollback, Tokenizer, UsageError
from backends.remote.context import RemoteContext
from backends.remote.verifying_server import ServedModel, VerifyingServer, reaching


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
