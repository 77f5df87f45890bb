"""The models to choose from, as the loaded one lets us judge them."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.engine import Engine

if TYPE_CHECKING:
    from app.loading.model_list import ModelList


def models_here(engine: Engine) -> "ModelList":
    """List models with measured or expected speed; reads files, so it is for a thread."""
    from app.learned.plain_replies import rate_beside
    from app.loading.model_list import Speed, Speeds, list_models
    from app.pairing.stream_choice import expected_streaming_rate

    loaded = engine.status.loaded
    if loaded is None:
        return list_models(engine.paths.models, Speeds(lambda _: None, lambda _: None))
    info, reach = loaded.info, loaded.reach

    def measured(path: Path) -> float | None:
        return loaded.plain_rate if path == info.path else rate_beside(path, info, engine.paths)

    def expected(bytes_per_token: int) -> float | None:
        return reach.rate(bytes_per_token) if reach else None

    def streaming(path: Path, free: int) -> Speed | None:
        if path == info.path and loaded.plain_rate:
            return Speed(loaded.plain_rate, is_measured=True)
        memory = loaded.bandwidth
        rate = expected_streaming_rate(path, free, memory, engine.paths) if memory else None
        return None if rate is None else Speed(rate, is_measured=False)

    held = info.locked_bytes if info.streamed_bytes_per_token else info.weight_bytes
    speeds = Speeds(measured, expected, streaming)
    return list_models(engine.paths.models, speeds, loaded.name, held)
