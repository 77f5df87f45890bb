import sys
from random import Random

import pytest

from scripts.fuzzing import campaign
from scripts.fuzzing.campaign import READ, REFUSED, Summary, damaged_file, readings
from scripts.fuzzing.damage import MUTATIONS, Mutation, damaged
from tests.fixtures.faulty_kind import FaultyKind

_FAULTS = {"raise": "exception", "exit": "crash", "hang": "hang"}


@pytest.mark.slow
def test_a_campaign_notices_every_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "_PATIENCE_SECONDS", 8.0)
    summary, kind = Summary(), FaultyKind()
    files = {number: damaged_file(kind, [b""], 53, number).decode() for number in range(12)}
    assert set(files.values()) == {"fine", "refused", "raise", "exit", "memory", "hang"}
    for found in readings(FaultyKind, 12, 53):
        summary.add(found)
        wanted = files[found.number]
        outcome = REFUSED if wanted == "refused" else _FAULTS.get(wanted, READ)
        assert found.reading.outcome == outcome
        watched = wanted != "memory" or sys.platform == "linux"
        assert bool(found.reading.fault) == (wanted not in ("fine", "refused") and watched)
    assert summary.outcomes.total() == 12


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_damage_is_some_and_bears_any_length(mutation: Mutation):
    for size in (0, 1, 7, 300, 10_000):
        good = bytes(Random(size).randbytes(size))
        copies = [bytearray(good) for _ in range(20)]
        for seed, copy in enumerate(copies):
            mutation(copy, Random(seed))
        assert size < 16 or any(copy != good for copy in copies)


def test_the_same_seed_damages_in_the_same_way():
    good = bytes(range(256)) * 8
    one, same, other = (damaged(good, Random(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other
