"""Where other programs reach the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServedAt:
    """Address of a server without a path; one that works on this machine.

    is_on_all: whether it listens on all other addresses of this machine too.
    """

    address: str
    is_on_all: bool = False

    @property
    def base_url(self) -> str:
        """What most clients want to be told."""
        return f"{self.address}/v1"

    @property
    def words(self) -> str:
        """The base URL, and whether it is not the only one."""
        return f"{self.base_url}{', and on all addresses of this machine' * self.is_on_all}"
