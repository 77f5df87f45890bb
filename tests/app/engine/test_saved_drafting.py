"""What replies teach is saved, also where only drafters of one reply draft."""

from pathlib import Path

import pytest

from app.engine.session_drafters import Drafting
from app.learned.acceptance_memory import AcceptanceMemory
from app.paths import Paths
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.controller import Controller


class Drifted(CostModel):
    """Costs that are no longer right."""

    @property
    def has_drifted(self) -> bool:
        return True


@pytest.mark.parametrize("is_reserve", [False, True])
def test_acceptance_is_saved_and_drifted_costs_deleted(tmp_path: Path, is_reserve: bool) -> None:
    target, costs_file = tmp_path / "target.gguf", tmp_path / "costs.json"
    target.write_bytes(b"GGUF")
    costs_file.write_text("{}")
    paths = Paths.of_this_user()
    memory = AcceptanceMemory(target, paths)
    controller = Controller((), Drifted(Measured({1: 1.0, 8: 1.2})), 10)
    drafting = Drafting(
        "lookup",
        controller=None if is_reserve else controller,
        reserve=controller if is_reserve else None,
        memory=memory,
        costs_file=costs_file,
    )
    memory.remember("prediction", Acceptance({"any": (3.0, 4.0)}), {"name": "prediction"})
    drafting.remember()
    assert AcceptanceMemory(target, paths).recall("prediction").counts()
    assert not costs_file.exists()
