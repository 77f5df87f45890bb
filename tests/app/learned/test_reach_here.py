"""What is known of speeds here without a loaded model leads to the models that the app offers."""

import pytest

from app.learned.speeds import PlainReplies, reach_here
from app.learned.store import run_key
from app.loading.model_list import Reach, offered, recommended, suggested
from app.paths import Paths
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.engine_facts import expected_runner
from backends.hardware.bandwidth import Bandwidth
from models.metadata.memory_bill import facts_of
from models.stores.available_models import demo_path

ROOM = 21_000_000_000
MEASURED = ("_cached", "gpu_bandwidth")
"""What other tests have measured is in the cache of their home, which is this one's too."""


@pytest.mark.parametrize(("rate", "by"), [(19.1, LLAMACPP), (250.0, LLAMACPP), (250.0, MLX)])
def test_a_list_recommends_what_the_first_screen_suggests(
    rate: float, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list went by memory alone, and named a model of under one token a second."""
    pytest.importorskip("mlx.core" if by == MLX else "llama_cpp", reason="it is not installed")
    for name in MEASURED:
        monkeypatch.setattr(f"app.learned.speeds.{name}", lambda *_, **__: Bandwidth(30e9, ""))
    paths, demo = Paths.of_this_user(), demo_path()
    assert demo is not None
    assert reach_here(paths) is None
    key = run_key(demo, "", expected_runner(by, None, None))
    PlainReplies.at(paths.plain_replies / f"{key}.json").with_measured(rate)
    reach = reach_here(paths)
    assert reach == Reach.measured(30e9, rate, facts_of(demo, by).read_bytes)
    models = offered(paths.models, ROOM)
    best = recommended(models, reach)
    assert best == suggested(models, reach)[0]
    assert best is not None
    assert best.rate >= 8.0
