"""Several drafters on recorded texts, where a change of a pass's width costs time."""

import statistics

import pytest

from tests.fixtures.recorded import KINDS, Chat, RecordedText

TEXTS = RecordedText.all()
SEEDS = 4


def speedups(body: str, drafters: str, seed: int, spoilt: float) -> dict[tuple[float, str], float]:
    """Of one text of each kind at temperature 0, then at 0.8, in one session."""
    chat = Chat(body, drafters, seed, spoilt)
    chat.speedup(TEXTS[0])
    gained: dict[tuple[float, str], float] = {}
    for temperature in (0.0, 0.8):
        for kind in KINDS:
            texts = [t for t in TEXTS if (t.temperature, t.kind) == (temperature, kind)]
            gained[temperature, kind] = chat.speedup(texts[seed % 2])
    return gained


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", [0.0, 0.15])
@pytest.mark.parametrize("body", ["8B", "32B"])
def test_all_drafters_are_as_good_as_the_best_of_them(body: str, spoilt: float) -> None:
    """First replies included, and in no kind of text slower than plain decoding."""

    def means(drafters: str) -> dict[tuple[float, str], float]:
        runs = [speedups(body, drafters, seed, spoilt) for seed in range(SEEDS)]
        return {key: statistics.geometric_mean(run[key] for run in runs) for key in runs[0]}

    every, *parts = map(means, ("lookup,ngram,demo", "lookup,demo", "demo"))
    best = max(statistics.geometric_mean(part.values()) for part in parts)
    assert statistics.geometric_mean(every.values()) >= 0.97 * best
    assert min(every.values()) >= 0.98
