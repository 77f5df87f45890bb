"""Usage and timings in OpenAI's form, with what llama-server adds."""

from collections.abc import Sequence

from app.serve.reply_events import Ended, Timings

Fields = dict[str, object]


def usage_of(choices: Sequence[Ended], per_prompt: int) -> Fields:
    """Usage of all choices; per_prompt: so many have the same prompt, which counts once."""
    usages = [choice.usage for choice in choices]
    prompts = usages[::per_prompt]
    prompt = sum(usage.prompt_tokens for usage in prompts)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(u.cached_prompt_tokens for u in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(usage.reasoning_tokens for usage in usages),
            "accepted_prediction_tokens": sum(u.accepted_prediction_tokens for u in usages),
            "rejected_prediction_tokens": sum(u.rejected_prediction_tokens for u in usages),
        },
    }


def timings_of(choices: Sequence[Ended]) -> Fields:
    """What all choices took together, by llama-server's names; null where it was not measured.

    A prompt is read again for each choice, as far as it is not cached.
    """
    usages = [choice.usage for choice in choices]
    timings = [usage.timings for usage in usages]
    cached = sum(usage.cached_prompt_tokens for usage in usages)
    return {
        "cache_n": cached,
        "prompt_n": sum(usage.prompt_tokens for usage in usages) - cached,
        "prompt_ms": _milliseconds([timing.prefill_seconds for timing in timings]),
        "predicted_n": sum(usage.completion_tokens for usage in usages),
        "predicted_ms": _milliseconds([timing.decode_seconds for timing in timings]),
        "predicted_per_second": _decode_rate(timings),
        "draft_n": sum(timing.drafted for timing in timings),
        "draft_n_accepted": sum(timing.accepted for timing in timings),
    }


def _milliseconds(seconds: Sequence[float | None]) -> float | None:
    """The sum of what was measured; None if nothing was."""
    measured = [second for second in seconds if second is not None]
    return 1000.0 * sum(measured) if measured else None


def _decode_rate(timings: Sequence[Timings]) -> float | None:
    """Decode rate over all choices that have one: each counts as long as it took."""
    measured = [
        (timing.decode_tokens_per_second * timing.decode_seconds, timing.decode_seconds)
        for timing in timings
        if timing.decode_tokens_per_second is not None and timing.decode_seconds is not None
    ]
    seconds = sum(second for _, second in measured)
    return sum(tokens for tokens, _ in measured) / seconds if seconds else None
