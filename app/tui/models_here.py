"""The models to choose from, as the loaded one lets us judge them."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.engine import Engine

if TYPE_CHECKING:
    from app.loading.model_list import ModelList


def models_here(engine: Engine) -> "ModelList":
    """List models with measured or expected speed; reads files, so it is for a thread."""
    from app.learned.plain_replies import rate_beside
    from app.loading.model_list import Speeds, list_models

    loaded = engine.status.loaded
    if loaded is None:
        return list_models(engine.paths.models, Speeds(lambda _: None, lambda _: None))
    info, reach = loaded.info, loaded.reach

    def measured(path: Path) -> float | None:
        return loaded.plain_rate if path == info.path else rate_beside(path, info, engine.paths)

    def expected(bytes_per_token: int) -> float | None:
        return reach.rate(bytes_per_token) if reach else None

    speeds = Speeds(measured, expected)
    return list_models(engine.paths.models, speeds, loaded.name, info.weight_bytes)
