"""Models that run without drafters, such as those that are tuned."""

from pathlib import Path

import pytest

from app.loading.session_options import SessionOptions
from app.loading.streaming import AgreedModels, plan_alone
from app.paths import Paths
from backends.base import OutOfMemoryError
from models.metadata.memory_bill import facts_of
from models.reference import Reference

pytestmark = pytest.mark.usefixtures("llamacpp")


def test_it_streams_only_if_it_has_to_and_may(demo_file: Path, home: Path) -> None:
    paths, facts = Paths.of_this_user(), facts_of(demo_file)
    reference = Reference("demo", demo_file)
    small, large = round(1.45 * demo_file.stat().st_size), 10 * demo_file.stat().st_size

    def planned(stream: str, free: int | None = small) -> int | None:
        options = SessionOptions("demo", ctx=512, stream=stream)
        return plan_alone(reference, facts, options, paths, 512, free).lock_bytes

    assert planned("on", large) is None
    assert planned("on", None) is None
    held = planned("on")
    assert held is not None
    assert 0 < held < small
    for stream, is_offered in (("auto", True), ("off", False)):
        with pytest.raises(OutOfMemoryError) as refused:
            planned(stream)
        assert ("--stream on" in refused.value.remedy) is is_offered
    AgreedModels(paths.agreed_models).add(demo_file)
    assert planned("auto") == held
