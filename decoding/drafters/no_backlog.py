"""Base of drafters that need not read the history before they propose."""

from collections.abc import Iterator, Sequence

from decoding.events import Step


class NoBacklog:
    """A drafter without a context, which processes each token as it is committed."""

    def backlog(self, history: Sequence[int]) -> int:
        """Always 0."""
        del history
        return 0

    def refusal(self, history: Sequence[int]) -> str:
        """Always empty: it has no context that could be full."""
        del history
        return ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Nothing to read."""
        del history
        return iter(())

    def observe(self, step: Step) -> None:
        """Nothing to learn from the cost or fate of a draft: what was said comes with commit."""

    def rest(self) -> None:
        """Nothing to settle: a draft is no more than its tokens."""
