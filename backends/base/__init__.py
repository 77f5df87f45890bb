"""What every backend offers and raises. Imports nothing of the other packages."""

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
    PromptTooLongError,
    RollbackRefusedError,
    SpecchatError,
    UsageError,
)
from backends.base.model import (
    CacheState,
    Context,
    Logits,
    Model,
    ModelInfo,
    Rollback,
    Vocabulary,
)
from backends.base.tokenizer import Tokenizer

__all__ = [
    "CacheState",
    "Context",
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
    "PromptTooLongError",
    "Rollback",
    "RollbackRefusedError",
    "SpecchatError",
    "Tokenizer",
    "UsageError",
    "Vocabulary",
    "Warping",
]
