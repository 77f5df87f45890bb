"""Whether a model may be read from disk: it can be, and was agreed to."""

from pathlib import Path

from app.loading.model_selection import expected_backend
from app.loading.session_options import STREAM_OFF, STREAM_ON, SessionOptions
from app.loading.streaming.agreed_models import AgreedModels
from app.loading.streaming.stream_plan import can_stream
from app.paths import Paths
from backends.engines.backend_names import LLAMACPP
from models.metadata.model_facts import ModelFacts
from models.reference import Reference


def may_stream(
    reference: Reference, facts: ModelFacts, options: SessionOptions, free: int | None
) -> bool:
    """Whether a model that does not fit could stream, and that is not switched off.

    free: bytes of memory, None if unknown.
    """
    if free is None or options.stream == STREAM_OFF:
        return False
    is_llamacpp = expected_backend(reference, options.backend) == LLAMACPP
    return is_llamacpp and can_stream(facts, free)


def is_agreed(model: Path, options: SessionOptions, paths: Paths) -> bool:
    """Whether the user agreed to have a model read from disk, now or before."""
    return options.stream == STREAM_ON or AgreedModels(paths.agreed_models).has(model)
