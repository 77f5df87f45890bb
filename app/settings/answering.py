"""Sampling settings of answers: defaults, and the values set for one chat."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from app.settings import catalogue
from app.settings.catalogue import BY_NAME, CHAT_KEYS, LOSSY, Value
from backends.base import UsageError
from decoding.sampling.settings import OFF, SamplingSettings

PRESET = "preset"
_OWN = tuple(key.name for key in CHAT_KEYS if key.name != "system")


@dataclass(frozen=True, slots=True)
class Answering:
    """Sampling settings, and the maximum length of an answer in tokens.

    has_seed: whether the user set the seed; otherwise each answer draws its own.
    """

    sampling: SamplingSettings
    max_tokens: int
    has_seed: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Answering":
        """The defaults that some settings make."""
        longest = int(values.get("max_tokens", catalogue.DEFAULT_MAX_TOKENS))
        sampling = SamplingSettings(**catalogue.as_sampling(values))
        return cls(sampling, longest, "seed" in values)

    def changed(self, own: Mapping[str, Value]) -> "Answering":
        """Return a copy with a chat's own values."""
        longest = int(own.get("max_tokens", self.max_tokens))
        has_seed = self.has_seed or "seed" in own
        return Answering(replace(self.sampling, **catalogue.as_sampling(own)), longest, has_seed)

    def for_an_answer(self) -> SamplingSettings:
        seed = self.sampling.seed if self.has_seed else secrets.randbelow(1 << 32)
        return replace(self.sampling, seed=seed)

    def value(self, name: str) -> Value:
        if name == LOSSY:
            return str(self.sampling.lossy or OFF)
        return self.max_tokens if name == "max_tokens" else getattr(self.sampling, name)


def stored(own: Mapping[str, Value]) -> str:
    return json.dumps(dict(own))


def restored(text: str) -> dict[str, Value]:
    """Parse a chat's stored values; invalid ones are left out."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    own: dict[str, Value] = {}
    for name, value in cast("dict[str, object]", parsed).items():
        if name == PRESET and isinstance(value, str):
            own[name] = value
        elif name in _OWN:
            try:
                own[name] = catalogue.checked(BY_NAME[name], value)
            except UsageError:
                continue
    return own
