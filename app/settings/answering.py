"""Sampling settings of answers: defaults, and the values set for one chat."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.settings import catalogue
from app.settings.catalogue import BY_NAME, CHAT_KEYS, LOSSY, Value
from backends.base import UsageError
from backends.chat.reply_form import THINK_AUTO
from backends.chat.tools import as_object
from decoding.sampling.settings import OFF, SamplingSettings

PRESET, ALLOWED = "preset", "allowed"
"""Kept with a chat's values: its preset, and what the user allowed tools to do in it."""
_OWN = tuple(key.name for key in CHAT_KEYS if key.name != "system")


@dataclass(frozen=True, slots=True)
class Answering:
    """Sampling settings, and the maximum length of an answer in tokens.

    has_seed: whether the user set the seed; otherwise each answer draws its own. think: one of
    EFFORTS. think_budget: tokens of thinking after which it is ended; 0 for any number. tools: what
    it may call, as the setting has it.
    """

    sampling: SamplingSettings
    max_tokens: int
    has_seed: bool = False
    think: str = THINK_AUTO
    think_budget: int = 0
    tools: str = OFF

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Answering":
        """The defaults that some settings make."""
        return cls(SamplingSettings(), catalogue.DEFAULT_MAX_TOKENS).changed(values)

    def changed(self, own: Mapping[str, Value]) -> "Answering":
        """Return a copy with a chat's own values."""
        return Answering(
            replace(self.sampling, **catalogue.as_sampling(own)),
            int(own.get("max_tokens", self.max_tokens)),
            self.has_seed or "seed" in own,
            str(own.get(catalogue.THINK, self.think)),
            int(own.get(catalogue.THINK_BUDGET, self.think_budget)),
            str(own.get(catalogue.TOOLS, self.tools)),
        )

    def for_an_answer(self, version: int = 0) -> SamplingSettings:
        """The settings with a seed; versions other than 0 are not to be equal with a set one."""
        seed = (self.sampling.seed + version) % (1 << 63)
        seed = seed if self.has_seed else secrets.randbelow(1 << 32)
        return replace(self.sampling, seed=seed)

    def value(self, name: str) -> Value:
        if name == LOSSY:
            return str(self.sampling.lossy or OFF)
        return getattr(self if hasattr(self, name) else self.sampling, name)


def stored(own: Mapping[str, Value]) -> str:
    return json.dumps(dict(own))


def restored(text: str) -> dict[str, Value]:
    """Parse a chat's stored values; invalid ones are left out."""
    own: dict[str, Value] = {}
    for name, value in (as_object(text) or {}).items():
        if name in (PRESET, ALLOWED) and isinstance(value, str):
            own[name] = value
        elif name in _OWN:
            try:
                own[name] = catalogue.checked(BY_NAME[name], value)
            except UsageError:
                continue
    return own
