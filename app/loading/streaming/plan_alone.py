"""Plans a model that runs without drafters: in memory, or read from disk where it does not fit."""

from app.loading.memory_plan import MemoryPlan, plan
from app.loading.session_options import SessionOptions
from app.loading.streaming.permission import is_agreed, may_stream
from app.loading.streaming.stream_plan import stream_plan
from app.paths import Paths
from backends.base import OutOfMemoryError
from models.metadata.model_facts import ModelFacts
from models.reference import Reference


def plan_alone(
    reference: Reference,
    facts: ModelFacts,
    options: SessionOptions,
    paths: Paths,
    usual: int,
    free: int | None,
) -> MemoryPlan:
    """As plan; a model that does not fit streams, if that is possible and agreed to.

    Raises:
        OutOfMemoryError: it does not fit, and does not stream.
    """
    try:
        return plan(reference.name, facts, options.ctx, usual, free)
    except OutOfMemoryError as refusal:
        if free is None or options.gpu_layers or not may_stream(reference, facts, options, free):
            raise
        if not is_agreed(reference.path, options, paths):
            remedy = f"{refusal.remedy}\nWith --stream on it is read from disk."
            raise OutOfMemoryError(refusal.what, refusal.why, remedy) from refusal
        return stream_plan(reference.name, facts, options.ctx, usual, free)
