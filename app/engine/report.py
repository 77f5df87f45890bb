"""JSON report of one reply: schema 1 of docs/reference/json.md."""

import math
from dataclasses import asdict
from typing import Any

from app.engine.metrics import reply_metrics
from app.engine.reply import Reply
from app.engine.session import Session

SCHEMA = 1

STATISTICS = (
    "prompt_tokens", "cached_prompt_tokens", "ahead_tokens", "completion_tokens", "steps",
    "drafted", "accepted", "acceptance", "drafted_share", "tokens_per_step", "accepted_by_position",
    "accepted_lengths", "steps_by_shape", "by_drafter", "load_seconds", "prefill_seconds",
    "ttft_seconds", "decode_seconds", "decode_tokens_per_second", "draft_seconds",
    "verify_seconds", "overhead_seconds", "plain_tokens_per_second", "plain_source", "speedup",
    "speedup_error", "bytes_per_token", "bandwidth_bytes_per_second", "bandwidth_source",
    "wall_tokens_per_second", "times_wall", "energy_joules_per_token", "energy_source",
    "peak_memory_bytes", "memory",
)  # fmt: skip
"""Figures under `stats`, in order."""

SAMPLED = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
MODEL = (
    "ref", "name", "path", "backend", "device", "architecture", "quantization", "parameters",
    "weight_bytes", "streamed_bytes_per_token", "kv", "gpu_layers", "context",
)  # fmt: skip
"""Keys under `sampling`, beside the length, and under `model`."""


def reply_report(session: Session, reply: Reply) -> dict[str, Any]:
    """Report of a reply that ended; figures that were not measured are None."""
    settings = reply.request.settings
    info, drafting = session.model.info, session.drafting
    metrics = reply_metrics(session, reply)
    figures = asdict(metrics)
    of_model = {
        "ref": session.reference.name,
        "path": str(info.path),
        "streamed_bytes_per_token": info.streamed_bytes_per_token or None,
        "kv": info.cache_type,
        "context": session.context.facts.n_ctx,
    }
    return {
        "schema": SCHEMA,
        "text": reply.text,
        "token_ids": reply.token_ids,
        "finish_reason": reply.finish_reason,
        "lossless": reply.lossy is None,
        "lossy": str(settings.lossy) if settings.lossy else None,
        "grammar": reply.grammar,
        "model": {
            name: of_model[name] if name in of_model else getattr(info, name) for name in MODEL
        },
        "draft": {
            "requested": drafting.requested,
            "state": metrics.state,
            "reason": metrics.reason or None,
            "drafters": list(metrics.drafters),
            "predicted": asdict(reply.predicted) if reply.predicted else None,
            "notes": list(drafting.notes),
        },
        "sampling": {name: getattr(settings, name) for name in SAMPLED}
        | {"max_tokens": reply.request.max_tokens},
        "stats": {name: _finite(figures[name]) for name in STATISTICS},
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
