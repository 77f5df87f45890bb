"""What every backend offers and raises. Imports nothing of the other packages."""

from backends.base.errors import (
    DraftUnavailableError,
    ModelError,
    OutOfMemoryError,
    PromptTooLongError,
    RollbackRefusedError,
    SpecchatError,
    UsageError,
)
from backends.base.model import CacheState, Context, Logits, Model, ModelInfo, Rollback, Tokenizer

__all__ = [
    "CacheState",
    "Context",
    "DraftUnavailableError",
    "Logits",
    "Model",
    "ModelError",
    "ModelInfo",
    "OutOfMemoryError",
    "PromptTooLongError",
    "Rollback",
    "RollbackRefusedError",
    "SpecchatError",
    "Tokenizer",
    "UsageError",
]
