"""Paths that tell of the model and the server, and never wait for the engine."""

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from app.engine.engine_status import Loaded
from app.serve.metrics import CONTENT_TYPE
from app.serve.refusal import RefusalKind, RefusedError
from app.serve.served_engine import ServedEngine
from app.settings.answering import Answering


def information_routes(served: ServedEngine, defaults: Answering) -> Sequence[BaseRoute]:
    """Health, metrics, the model, and what llama-server's clients ask for."""
    created = served.started_at

    def answer(path: str, endpoint: Callable[[Request], Response]) -> Route:
        async def run(request: Request) -> Response:
            return endpoint(request)

        return Route(path, run, methods=["GET"])

    def health(_request: Request) -> Response:
        _ = served.loaded  # refused until it is
        return JSONResponse({"status": "ok"})

    def metrics(_: Request) -> Response:
        return Response(served.metrics.text(), media_type=CONTENT_TYPE)

    def models(_: Request) -> Response:
        model = _model(served.loaded, created)
        # Codex reports an error without a list of models in its own form; it may be empty.
        return JSONResponse({"object": "list", "data": [model], "models": []})

    def model(request: Request) -> Response:
        loaded = served.loaded
        if request.path_params["name"] != loaded.name:
            raise RefusedError(RefusalKind.NOT_FOUND, f"the model here is {loaded.name}", "model")
        return JSONResponse(_model(loaded, created))

    def props(_: Request) -> Response:
        return JSONResponse(_props(served.loaded, defaults))

    return [
        answer("/health", health),
        answer("/metrics", metrics),
        answer("/v1/models", models),
        answer("/v1/models/{name:path}", model),
        answer("/props", props),
    ]


def _model(loaded: Loaded, created: int) -> dict[str, object]:
    info = loaded.info
    return {
        "id": loaded.name,
        "object": "model",
        "created": created,
        "owned_by": "specchat",
        "context_length": loaded.context_size,
        "max_model_len": loaded.context_size,
        "meta": {
            "n_ctx": loaded.context_size,
            "n_ctx_train": info.context_limit,
            "n_params": info.parameters,
            "n_vocab": info.n_vocab,
            "size": info.weight_bytes,
        },
        "drafters": list(loaded.drafters),
    }


def _props(loaded: Loaded, defaults: Answering) -> dict[str, object]:
    """As llama-server tells them; Zed reads the length of the context there."""
    sampling = defaults.sampling
    parameters = {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "n_predict": -1,
    }
    return {
        "default_generation_settings": {"n_ctx": loaded.context_size, "params": parameters},
        "total_slots": 1,
        "model_alias": loaded.name,
        "modalities": {"vision": False, "audio": False},
    }
