"""What servers tell of drafting beside an answer, as they name it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from app.remote.values import count_of, part_of

_DRAFTED_AND_ACCEPTED = (
    ("timings", "draft_n", "draft_n_accepted"),  # llama-server, specchat, mlx-vlm
    ("metrics.speculative_decoding", "num_draft_tokens", "num_accepted_draft_tokens"),  # vLLM
    ("sglext.spec_tokens_details", "spec_num_proposed_drafts", "spec_num_correct_drafts"),  # SGLang
    ("meta_info", "spec_draft_token_num", "spec_accept_token_num"),  # SGLang, older
    ("stats", "total_draft_tokens_count", "accepted_draft_tokens_count"),  # LM Studio
    ("usage", "total_draft_tokens_count", "accepted_draft_tokens_count"),  # LM Studio's own API
)
"""Where the counts of drafted and of accepted tokens are: vLLM's pull request 48915, SGLang's 33518
and 13754, LM Studio's changelog of 0.3.10, mlx-vlm's 1788."""

_OF_DRAFTING = ("draft", "spec", "accept", "num_")
_PREDICTED = "usage.completion_tokens_details"


@dataclass(frozen=True, slots=True)
class DraftReport:
    """figures: all that was told, by its path; drafted, accepted: None where it is not told.

    predicted: accepted and rejected tokens of a predicted text, None where it is not told.
    """

    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    drafted: int | None = None
    accepted: int | None = None
    predicted: tuple[int, int] | None = None

    def with_chunk(self, chunk: Mapping[str, Any]) -> "DraftReport":
        """The report with what a further part of the answer tells; the last one counts."""
        figures, drafted, accepted = dict(self.figures), self.drafted, self.accepted
        for path, drafted_name, accepted_name in _DRAFTED_AND_ACCEPTED:
            part = part_of(chunk, path)
            if (told := count_of(part.get(drafted_name))) is not None:
                drafted, accepted = told, count_of(part.get(accepted_name))
                figures |= dict(_figures(path, part))
        details = part_of(chunk, _PREDICTED)
        pair = [
            count_of(details.get(f"{one}_prediction_tokens")) for one in ("accepted", "rejected")
        ]
        predicted = cast("tuple[int, int]", tuple(pair)) if None not in pair else self.predicted
        return DraftReport(figures, drafted, accepted, predicted)


def _figures(path: str, part: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in part.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and any(word in name for word in _OF_DRAFTING):
            yield f"{path}.{name}", value
