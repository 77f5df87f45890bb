"""The contract of every backend, its errors, and file helpers; imports no other package."""

from backends.base.device_sampling import DeviceRow, DeviceSampling, Drawn, Listener, Warping
from backends.base.errors import (
    ContextTooLargeError,
    DiskFullError,
    DownloadError,
    DownloadStoppedError,
    DraftUnavailableError,
    HubUnreachableError,
    ModelError,
    OutOfMemoryError,
    PassStoppedError,
    PromptTooLongError,
    RollbackRefusedError,
    SpecchatError,
    UsageError,
)
from backends.base.model import (
    CacheState,
    Context,
    ContextFacts,
    Logits,
    Model,
    ModelInfo,
    Rollback,
    Vocabulary,
    check_context,
)
from backends.base.tokenizer import Tokenizer
from backends.base.truncation import check_truncation

__all__ = [
    "CacheState",
    "Context",
    "ContextFacts",
    "ContextTooLargeError",
    "DeviceRow",
    "DeviceSampling",
    "DiskFullError",
    "DownloadError",
    "DownloadStoppedError",
    "DraftUnavailableError",
    "Drawn",
    "HubUnreachableError",
    "Listener",
    "Logits",
    "Model",
    "ModelError",
    "ModelInfo",
    "OutOfMemoryError",
    "PassStoppedError",
    "PromptTooLongError",
    "Rollback",
    "RollbackRefusedError",
    "SpecchatError",
    "Tokenizer",
    "UsageError",
    "Vocabulary",
    "Warping",
    "check_context",
    "check_truncation",
]
