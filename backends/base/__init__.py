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
from backends.base.model import Context, Logits, Model, ModelInfo, Rollback, State, Tokenizer

__all__ = [
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
    "State",
    "Tokenizer",
    "UsageError",
]
