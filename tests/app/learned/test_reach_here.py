"""What is known of speeds here without a loaded model leads to the models that the app offers."""

import pytest

from app.learned.speeds import PlainReplies, reach_here
from app.learned.store import run_key
from app.loading.model_list import Reach, offered, recommended, suggested
from app.paths import Paths
from backends.engines.backend_selection import LLAMACPP
from backends.engines.engine_facts import expected_runner
from backends.hardware.bandwidth import Bandwidth
from models.metadata.memory_bill import facts_of
from models.stores.available_models import demo_path

ROOM = 21_000_000_000


@pytest.mark.parametrize("rate", [19.1, 250.0])
def test_a_list_recommends_what_the_first_screen_suggests(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list went by memory alone, and named a model of under one token a second."""
    monkeypatch.setattr("app.learned.speeds.measured_on_cpu", lambda _: Bandwidth(30e9, ""))
    monkeypatch.setattr("app.learned.speeds.gpu_bandwidth", lambda: Bandwidth(30e9, ""))
    paths, demo = Paths.of_this_user(), demo_path()
    assert demo is not None
    assert reach_here(paths) is None
    key = run_key(demo, "", expected_runner(LLAMACPP, None, None))
    PlainReplies.at(paths.plain_replies / f"{key}.json").with_measured(rate)
    reach = reach_here(paths)
    assert reach == Reach.measured(30e9, rate, facts_of(demo).read_bytes)
    models = offered(paths.models, ROOM)
    best = recommended(models, reach)
    assert best == suggested(models, reach)[0]
    assert best is not None
    assert best.rate >= 8.0
