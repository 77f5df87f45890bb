"""The JSON object of one reply: schema 1 of docs/reference/json.md."""

import math
from typing import Any

from app.performance import performance
from app.reply import Reply
from app.session import Session
from decoding.sampling import SamplingSettings

SCHEMA = 1


def reply_report(
    session: Session, reply: Reply, settings: SamplingSettings, max_tokens: int
) -> dict[str, Any]:
    """Everything known of a reply; what was not measured is None."""
    info = session.model.info
    drafting = session.drafting
    return {
        "schema": SCHEMA,
        "text": reply.text,
        "token_ids": reply.token_ids,
        "finish_reason": reply.finish_reason,
        "lossless": reply.lossy is None,
        "lossy": str(settings.lossy) if settings.lossy else None,
        "model": {
            "ref": session.reference.name,
            "name": info.name,
            "path": str(info.path),
            "backend": info.backend,
            "device": info.device,
            "architecture": info.architecture,
            "quantization": info.quantization,
            "parameters": info.parameters,
            "weight_bytes": info.weight_bytes,
            "context": session.context.n_ctx,
        },
        "draft": {
            "requested": drafting.requested,
            "state": drafting.state,
            "reason": drafting.reason or None,
            "drafters": drafting.names,
            "notes": list(drafting.notes),
        },
        "sampling": {
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": settings.min_p,
            "repeat_penalty": settings.repeat_penalty,
            "seed": settings.seed,
            "max_tokens": max_tokens,
        },
        "stats": _statistics(session, reply),
    }


def _statistics(session: Session, reply: Reply) -> dict[str, Any]:
    statistics = reply.statistics
    figures = {
        "prompt_tokens": statistics.prompt_tokens,
        "cached_prompt_tokens": statistics.cached_prompt_tokens,
        "completion_tokens": statistics.completion_tokens,
        "steps": statistics.steps,
        "drafted": statistics.drafted,
        "accepted": statistics.accepted,
        "acceptance": statistics.acceptance,
        "tokens_per_step": statistics.tokens_per_step,
        "accepted_by_position": statistics.accepted_by_position,
        "accepted_lengths": statistics.accepted_lengths,
        "steps_by_shape": statistics.steps_by_shape,
        "by_drafter": {
            name: {
                "steps": drafter.steps,
                "drafted": drafter.drafted,
                "accepted": drafter.accepted,
                "draft_seconds": drafter.draft_seconds,
            }
            for name, drafter in statistics.by_drafter.items()
        },
        "load_seconds": session.load_seconds,
        "prefill_seconds": statistics.prefill_seconds,
        "ttft_seconds": statistics.ttft_seconds,
        "decode_seconds": statistics.decode_seconds,
        "decode_tokens_per_second": statistics.decode_tokens_per_second,
        "draft_seconds": statistics.draft_seconds,
        "verify_seconds": statistics.verify_seconds,
        "overhead_seconds": statistics.overhead_seconds,
        **performance(session, reply),
    }
    return {name: _finite(value) for name, value in figures.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
