"""Usage and timings in OpenAI's form, with what llama-server adds."""

from collections.abc import Sequence

from app.serve.reply_events import Ended, Usage

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
    """Times of the last choice and what was drafted for all, by llama-server's names."""
    usage = choices[-1].usage if choices else Usage()
    timings = usage.timings
    return {
        "cache_n": usage.cached_prompt_tokens,
        "prompt_n": usage.prompt_tokens - usage.cached_prompt_tokens,
        "prompt_ms": _milliseconds(timings.prefill_seconds),
        "predicted_n": usage.completion_tokens,
        "predicted_ms": _milliseconds(timings.decode_seconds),
        "predicted_per_second": timings.decode_tokens_per_second,
        "draft_n": sum(choice.usage.timings.drafted for choice in choices),
        "draft_n_accepted": sum(choice.usage.timings.accepted for choice in choices),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds
