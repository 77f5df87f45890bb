"""OpenAI's embeddings, by the embedding model that the settings name."""

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.loading.embedding import Embedding
from app.paths import Paths
from app.serve.incoming import checked, json_body, while_connected
from app.serve.refusal import RefusalKind, RefusedError, invalid, refusal_of
from app.serve.request_body import Fields, read_body
from app.serve.served_engine import ServedEngine
from app.settings.catalogue import EMBEDDING_MODEL
from app.settings.in_effect import settings_in_effect
from backends.base import SpecchatError
from backends.hardware.host import physical_cores

_MOST_TEXTS = 2048
"""As OpenAI has it."""

_MOST_TOKENS = 2048
"""Of a text: the memory of a pass grows with their square."""

_TOGETHER = 16
"""Texts after which it is seen whether the client is still there."""

_Text = Annotated[str, Field(min_length=1)]


class EmbeddingRequest(Fields):
    """Texts; tokens, which OpenAI takes too, are those of its own vocabularies."""

    ignored = frozenset({"user"})

    input: _Text | Annotated[list[_Text], Field(min_length=1, max_length=_MOST_TEXTS)]
    model: Annotated[str, Field(max_length=1024)] = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, le=1 << 20)] | None = None


def embeddings_route(served: ServedEngine) -> Route:
    """The path that embeds texts; it takes no turn, and runs beside a reply."""
    models: dict[str, Embedding] = {}

    async def embeddings(request: Request) -> JSONResponse:
        with served.counting.take():
            with served.reading.take():
                body = await json_body(request, served.limits)
            asked = await checked(body, lambda: read_body(EmbeddingRequest, body))
            name = _model(served, asked.model)
            model = models.setdefault(name, _embedding(name, served.engine.paths))
            work = asyncio.ensure_future(_embedded(model, asked))
            return JSONResponse(await while_connected(work, request.receive))

    return Route("/v1/embeddings", embeddings, methods=["POST"])


def _model(served: ServedEngine, asked: str) -> str:
    """The name of the embedding model; any other but that of the chat's model stands for it."""
    name = str(settings_in_effect(served.engine.paths).values.get(EMBEDDING_MODEL, ""))
    if name and (asked == name or asked not in [one.name for one in served.models.all]):
        return name
    if name:
        raise invalid(f"{asked} is no embedding model; {name} is", "model")
    what = f"no embedding model is set here; the setting {EMBEDDING_MODEL} names one"
    raise RefusedError(RefusalKind.NOT_FOUND, what, "model")


def _embedding(name: str, paths: Paths) -> Embedding:
    return Embedding(name, paths, physical_cores(), _MOST_TOKENS)


async def _embedded(model: Embedding, asked: EmbeddingRequest) -> dict[str, object]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    rows, tokens = list[NDArray[np.float32]](), 0
    try:
        embedder = await asyncio.to_thread(model.load)
    except SpecchatError as error:
        raise invalid(error.summary, "model") from error
    try:
        if asked.dimensions not in (None, embedder.width):
            raise invalid(f"dimensions: the model has {embedder.width:,}", "dimensions")
        for at in range(0, len(texts), _TOGETHER):
            found = await asyncio.to_thread(embedder.embed, texts[at : at + _TOGETHER])
            for number, is_cut in enumerate(found.is_cut, at):
                if is_cut:
                    what = f"input[{number}] has more than {embedder.most_tokens:,} tokens"
                    raise RefusedError(RefusalKind.CONTEXT_EXCEEDED, what, "input")
            rows.extend(found.rows)
            tokens += sum(found.tokens)
    except SpecchatError as error:
        raise refusal_of(error) from error
    return {
        "object": "list",
        "data": _data(rows, asked.encoding_format),
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _data(rows: Iterable[NDArray[np.float32]], form: str) -> list[dict[str, object]]:
    return [
        {
            "object": "embedding",
            "index": number,
            "embedding": row.tolist()
            if form == "float"
            else b64encode(row.astype("<f4").tobytes()).decode(),
        }
        for number, row in enumerate(rows)
    ]
