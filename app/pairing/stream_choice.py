"""Plans a model that streams: what is held beside its drafter, and what speed to expect."""

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.drafting.spec.draft_spec import DraftSpec
from app.learned.disk_speeds import disk_speed, known_disk_speed
from app.learned.memory_bandwidth import processor_bandwidth
from app.learned.plain_replies import PlainReplies
from app.learned.run_key import run_key
from app.loading.memory_plan import MemoryPlan
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.loading.streaming.memory_split import Split, best_split
from app.loading.streaming.outlook import Outlook, Share
from app.loading.streaming.pass_time import ReadRates, pass_seconds
from app.loading.streaming.stream_plan import stream_plan, with_drafter
from app.pairing.stream_contenders import StreamContenders
from app.paths import Paths
from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP
from backends.engines.runner import expected_runner, quantized, tenths
from backends.hardware.host import physical_cores
from backends.streaming.lock_plan import lock_plan
from backends.streaming.weight_layout import WeightLayout, weight_layout
from decoding.estimation.cost import CostModel
from models.metadata.model_facts import ModelFacts, facts_of
from models.reference import Reference

_LEAST_SECONDS = 1e-6
"""Of a pass, where less is expected than nothing."""

_DRAFT = 16
"""Tokens of the draft whose cost is told where its gain is unknown."""


def planned_stream(
    reference: Reference,
    facts: ModelFacts,
    spec: DraftSpec,
    options: SessionOptions,
    paths: Paths,
    usual: int,
    free: int,
) -> tuple[MemoryPlan, Outlook]:
    """Divide memory between a model's weights and its drafters, and tell what to expect.

    A drafter that was not measured with this model is credited with the prior acceptance of drafter
    models for the division, and with nothing in the outlook. free: bytes of memory. Takes up to two
    seconds if the disk or the memory was not measured before.

    Raises:
        OutOfMemoryError: context and working memory alone do not fit.
        ModelError: the model's file cannot be read.
    """
    planned = stream_plan(reference.name, facts, options.ctx, usual, free)
    budget = planned.lock_bytes or 0
    contenders = StreamContenders(reference, facts, spec, options, paths, planned.n_ctx)
    layout = weight_layout(reference.path)
    disk = disk_speed(reference.path, paths)
    memory = processor_bandwidth(options.threads or physical_cores(), paths)
    if disk is None or memory is None:
        chosen = with_drafter(planned, contenders.named_bytes)
        return chosen, Outlook(_share(layout, chosen), disk)
    rates = ReadRates(disk.bytes_per_second, memory.bytes_per_second)
    best = _best(contenders, budget, layout, rates)
    taken = best.drafter.memory_bytes if best.drafter else 0
    chosen = with_drafter(planned, taken if spec.is_automatic else contenders.named_bytes)
    share = _share(layout, chosen)
    ran = measured_rate(
        reference.path, options, 0, share.streamed / max(layout.bytes_per_token, 1), paths
    )
    rate = ran or 1.0 / rates.seconds(share.streamed, layout.bytes_per_token)
    is_claimed = best.drafter is not None and best.drafter.is_measured
    outlook = Outlook(share, disk, rate, best if is_claimed else None, draft_cost(best))
    return chosen, outlook


def best_room(contenders: StreamContenders, budget: int, costs: CostModel, held: int) -> int:
    """Bytes of a budget, for drafters and held weights, that the best drafter takes.

    costs: of the model's passes, measured while so many bytes were held. What a pass over one token
    reads more or less with another share is estimated from the disk's speed.

    Raises:
        ModelError: the model's file cannot be read.
    """
    path, options, paths = contenders.reference.path, contenders.options, contenders.paths
    disk = known_disk_speed(path, paths)
    memory = processor_bandwidth(options.threads or physical_cores(), paths)
    if disk is None or memory is None:
        return 0
    rates = ReadRates(disk.bytes_per_second, memory.bytes_per_second)
    expected = pass_seconds(weight_layout(path), budget, rates)
    then = expected(budget - held, 1)

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if n_tokens > costs.largest:
            return math.inf
        return max(costs.seconds(n_tokens) + expected(drafter_bytes, 1) - then, _LEAST_SECONDS)

    best = best_split(contenders.all(memory.bytes_per_second), seconds, budget)
    return best.drafter.memory_bytes if best.drafter else 0


def expected_streaming_rate(path: Path, free: int, memory: float, paths: Paths) -> float | None:
    """Tokens a second of a model that streams without a drafter; None where nothing was measured.

    free: bytes of memory; memory: bytes read from it per second. Reads headers, measures nothing.
    """
    disk = known_disk_speed(path, paths)
    if disk is None:
        return None
    with suppress(ModelError):
        planned = stream_plan(path.name, facts_of(path), None, DEFAULT_CONTEXT, free)
        layout, budget = weight_layout(path), planned.lock_bytes or 0
        rates = ReadRates(disk.bytes_per_second, memory)
        return 1.0 / pass_seconds(layout, budget, rates)(0, 1)
    return None


def _best(
    contenders: StreamContenders, budget: int, layout: WeightLayout, rates: ReadRates
) -> Split:
    """The division of a budget with the most tokens per second."""
    seconds = pass_seconds(layout, budget, rates)
    return best_split(contenders.all(rates.memory), seconds, budget)


def _share(layout: WeightLayout, planned: MemoryPlan) -> Share:
    divided = lock_plan(layout, planned.lock_bytes or 0)
    return Share(divided.locked_bytes, divided.read_bytes_per_token)


def measured_rate(
    path: Path, options: SessionOptions, gpu_layers: int, streamed: float, paths: Paths
) -> float | None:
    """Tokens a second of plain decoding when a similar share streamed; None if it never did.

    gpu_layers: as the engine counts them. streamed: share of the bytes that a token reads.
    """
    runner = expected_runner(LLAMACPP, options.threads, gpu_layers)
    cache_type = quantized(options.cache_type)
    runner = replace(runner, streamed_tenths=tenths(streamed), cache_type=cache_type)
    try:
        file = paths.plain_replies / f"{run_key(path, '', runner)}.json"
    except OSError:
        return None
    return PlainReplies.at(file).rate


def draft_cost(best: Split) -> str:
    """What a draft takes whose gain is unknown, in words; empty where the gain is known."""
    drafter = best.drafter
    if drafter is None or drafter.is_measured:
        return ""
    seconds = _DRAFT * drafter.draw_seconds
    return (
        f"a draft of {_DRAFT} tokens by {drafter.name} takes about {seconds:.2g} s, and its gain "
        "is not measured yet"
    )
