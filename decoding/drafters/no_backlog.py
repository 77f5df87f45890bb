"""Of drafters that take in each token as it is committed."""

from collections.abc import Iterator, Sequence

from decoding.events import Step


class NoBacklog:
    """There is nothing to read before a proposal."""

    def backlog(self, history: Sequence[int]) -> int:
        """Always 0."""
        del history
        return 0

    def refusal(self, history: Sequence[int]) -> str:
        """Never: it has no context that could be full."""
        del history
        return ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Done at once."""
        del history
        return iter(())

    def observe(self, step: Step) -> None:
        """Nothing to learn from the cost or fate of a draft: what was said comes with commit."""
