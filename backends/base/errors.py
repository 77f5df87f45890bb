"""Errors shown to users: what happened, why, and what to do about it."""

_CONTEXT_STEP = 256
"""Suggested context sizes are multiples of this."""


class SpecchatError(Exception):
    """Base of every error shown to users; its text is complete without a traceback."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    @property
    def summary(self) -> str:
        """What happened and why, without the remedy."""
        return f"{self.what}: {self.why}" if self.why else self.what

    def __str__(self) -> str:
        return f"{self.summary}\n{self.remedy}" if self.remedy else self.summary


class UsageError(SpecchatError):
    """An option, a setting or an input that cannot be used as given."""


class PromptTooLongError(UsageError):
    """A prompt that leaves no room in the context."""

    def __init__(self, prompt_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt is {prompt_tokens:,} tokens, {prompt_tokens - n_ctx + 1:,} too many",
            f"the context holds {n_ctx:,}, and one must stay free for the answer",
            "Shorten it, or use a larger --ctx where the model has one.",
        )
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx


class PromptTooLargeError(UsageError):
    """A prompt of so many characters that it is not even turned into tokens."""

    def __init__(self, size: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {size:,} characters",
            f"the context holds {n_ctx:,} tokens",
            "Shorten it.",
        )


class ModelError(SpecchatError):
    """A model that cannot be loaded or run."""


class OutOfMemoryError(ModelError):
    """Too little free memory."""


class ContextTooLargeError(OutOfMemoryError):
    """A context whose cache does not fit; needed and free in bytes, fitting in tokens."""

    def __init__(self, n_ctx: int, needed: int, free: int, fitting: int) -> None:
        rounded = fitting // _CONTEXT_STEP * _CONTEXT_STEP
        super().__init__(
            f"a context of {n_ctx:,} tokens needs {needed / 1e9:.1f} GB",
            f"{free / 1e9:.1f} GB are free",
            f"Use --ctx {rounded} or less."
            if rounded > 0
            else "Free some memory, or choose a smaller model.",
        )


class ServerError(ModelError):
    """A server elsewhere that cannot be asked, or does not answer as it should."""


class RollbackRefusedError(ModelError):
    """A context that cannot forget its last tokens."""


class PeerLostError(ModelError):
    """No connection to another machine with layers of the model, which has to be loaded again."""

    def __init__(self, name: str, why: str, remedy: str = "") -> None:
        usual = "Start `specchat rpc-server` of the same version there, then try again."
        super().__init__(f"no connection to {name}", why, remedy or usual)


class DeviceLostError(ModelError):
    """A GPU that failed: models are to be loaded again, and run on the processor."""


class PassStoppedError(SpecchatError):
    """A pass ended early because it was asked to stop; its context is as it was before."""

    def __init__(self) -> None:
        super().__init__("it was stopped")


class DraftUnavailableError(SpecchatError):
    """A drafter that cannot be used; replies are then generated without one."""


class DiskFullError(DraftUnavailableError):
    """Too little disk space for a drafter or for its learned data."""


class ToolError(SpecchatError):
    """A tool that cannot be called, or whose call has no result."""


class DownloadError(SpecchatError):
    """A failure of the network, the model hub or a download."""


class HubUnreachableError(DownloadError):
    """A hub that does not answer, or that offline mode forbids to ask."""


class DownloadStoppedError(DownloadError):
    """A download that was stopped; the received part is kept."""
