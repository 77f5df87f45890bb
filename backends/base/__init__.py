"""The contract of every backend, its errors, and file helpers; imports no other package."""

# What is imported here is for others to import:
# pyright: reportUnusedImport=false
# ruff: noqa: F401

from backends.base.errors import (
    ContextTooLargeError,
    DeviceLostError,
    DiskFullError,
    DownloadError,
    DownloadStoppedError,
    DraftUnavailableError,
    HubUnreachableError,
    ModelError,
    OutOfMemoryError,
    PassStoppedError,
    PeerLostError,
    PromptTooLargeError,
    PromptTooLongError,
    RollbackRefusedError,
    ServerError,
    SpecchatError,
    ToolError,
    UsageError,
)
from backends.base.model import (
    NO_COPIES,
    Block,
    BlockContext,
    CacheState,
    CacheType,
    Context,
    ContextFacts,
    DeviceRow,
    DeviceSampling,
    Drawn,
    Head,
    InfillTokens,
    Listener,
    Logits,
    Model,
    ModelInfo,
    Rollback,
    SharedContext,
    Tokenizer,
    Vocabulary,
    Warping,
    check_context,
    check_room,
    check_truncation,
    no_images,
)
