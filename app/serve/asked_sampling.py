"""Sampling settings of a request: what it asks for, and the server's defaults for the rest."""

from dataclasses import replace
from typing import Any

from app.serve.refusal import RefusedError, invalid
from app.settings.answering import Answering
from backends.base import UsageError
from decoding.sampling.sampling_settings import SamplingSettings


def asked_sampling(
    defaults: Answering, **asked: float | tuple[tuple[int, float], ...] | None
) -> SamplingSettings:
    """Settings of one reply; what is None was not asked for.

    Without a seed each request draws its own, unless the server was given one.

    Raises:
        RefusedError: a value is out of range.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    try:
        return replace(defaults.for_an_answer(), **given)
    except UsageError as error:
        raise _refused(error) from None


def seeds(first: int, count: int) -> list[int]:
    """Seeds of several replies to one request: the first is the one asked for."""
    return [first, *(_mixed(first, choice) for choice in range(1, count))]


def _mixed(seed: int, choice: int) -> int:
    """Another seed of the same range; neighbours of a seed are often asked for themselves."""
    return (seed * 6364136223846793005 + choice * 1442695040888963407) % (1 << 63)


def _refused(error: UsageError) -> RefusedError:
    name = error.what.removeprefix("--").partition(" ")[0].replace("-", "_")
    return invalid(f"{error.what.removeprefix('--')}: {error.why}", name)
