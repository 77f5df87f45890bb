"""OpenAI's embeddings, by the embedding model that the settings name."""

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.loading.embedding import Embedding
from app.serve.incoming import checked, json_body, while_connected
from app.serve.refusal import RefusalKind, RefusedError, invalid
from app.serve.request_body import Fields, read_body
from app.serve.served_engine import ServedEngine
from app.settings.catalogue import EMBEDDING_MODEL
from app.settings.in_effect import settings_in_effect
from backends.base import SpecchatError
from backends.hardware.host import physical_cores

_MOST_TOKENS = 2048
"""Of a text: the memory of a pass grows with their square."""

_TOGETHER = 16
"""Texts after which it is seen whether the client is still there."""

_Text = Annotated[str, Field(min_length=1)]


class EmbeddingRequest(Fields):
    """Texts; tokens, which OpenAI takes too, are those of its own vocabularies."""

    ignored = frozenset({"user"})

    input: _Text | Annotated[list[_Text], Field(min_length=1, max_length=2048)]
    model: Annotated[str, Field(max_length=1024)] = ""
    encoding_format: Literal["float", "base64"] = "float"


def embeddings_route(served: ServedEngine) -> Route:
    """The path that embeds texts; it takes no turn, and runs beside a reply."""
    models: dict[str, Embedding] = {}

    async def embeddings(request: Request) -> JSONResponse:
        with served.counting.take():
            with served.reading.take():
                body = await json_body(request, served.limits)
            asked = await checked(body, lambda: read_body(EmbeddingRequest, body))
            name = _model(served, asked.model)
            if name not in models:
                models[name] = Embedding(name, served.engine.paths, physical_cores(), _MOST_TOKENS)
            work = asyncio.ensure_future(_embedded(models[name], asked))
            return JSONResponse(await while_connected(work, request.receive))

    return Route("/v1/embeddings", embeddings, methods=["POST"])


def _model(served: ServedEngine, asked: str) -> str:
    """The name of the embedding model; any other but that of a model that chats stands for it."""
    name = str(settings_in_effect(served.engine.paths).values.get(EMBEDDING_MODEL, ""))
    if not name:
        what = f"no embedding model is set here; the setting {EMBEDDING_MODEL} names one"
        raise RefusedError(RefusalKind.NOT_FOUND, what, "model")
    if asked != name and asked in [one.name for one in served.models.all]:
        raise invalid(f"{asked} is no embedding model; {Path(name).name} is", "model")
    return name


async def _embedded(model: Embedding, asked: EmbeddingRequest) -> dict[str, object]:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    data, tokens = list[dict[str, object]](), 0
    try:
        embedder = await asyncio.to_thread(model.load)
        for at in range(0, len(texts), _TOGETHER):
            rows, counts = await asyncio.to_thread(embedder.embed, texts[at : at + _TOGETHER])
            if max(counts) > embedder.most_tokens:
                number = at + counts.index(max(counts))
                what = f"input[{number}] has more than {embedder.most_tokens:,} tokens"
                raise RefusedError(RefusalKind.CONTEXT_EXCEEDED, what, "input")
            tokens += sum(counts)
            for row in rows:
                is_float = asked.encoding_format == "float"
                vector = row.tolist() if is_float else b64encode(row.astype("<f4")).decode()
                data.append({"object": "embedding", "index": len(data), "embedding": vector})
    except SpecchatError as error:
        raise invalid(error.summary, "model") from error
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}
