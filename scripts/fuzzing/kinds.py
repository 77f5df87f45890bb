"""Every kind of file that a campaign can damage, by its name."""

from collections.abc import Callable

from scripts.fuzzing.kind import Kind

KINDS: dict[str, Callable[[], Kind]] = {}
