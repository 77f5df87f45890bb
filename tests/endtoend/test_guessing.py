"""jacobi and lookahead as --draft names them, on the bundled model and small ones."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from app.drafting import draft_spec
from app.drafting.drafter_building import DrafterEnvironment
from app.engine.session_drafters import Drafting, build
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Context, Model
from decoding.checks.distribution_check import branch_difference, divergences
from decoding.draft import Drafter
from decoding.events import Step
from decoding.generation import Limits
from decoding.planning.pausing import State
from decoding.sampling.distribution import SamplingSettings
from scripts.prompts import tokenized
from tests.fixtures.first_hit import first_hit_of
from tests.fixtures.replied import replied, said
from tests.fixtures.rounding import rounding

GREEDY = SamplingSettings(temperature=0.0)
PROMPTS, TOKENS = (1, 6), 32
NIGHTLY, SLOW = pytest.mark.nightly, pytest.mark.slow


@contextmanager
def drafting_by(spec: str, model: Model, context: Context, paths: Paths) -> Iterator[Drafting]:
    place = DrafterEnvironment(
        model, TargetContext(model, context), paths, None, None, lambda text: None
    )
    with closing(build(draft_spec.parse(spec, paths), place)) as drafting:
        yield drafting


def steps(context: Context, prompt: list[int], tokens: int, drafter: Drafter | None) -> list[Step]:
    return replied(context, prompt, GREEDY, Limits(tokens, frozenset()), drafter)


@pytest.mark.usefixtures("drafting_never_pays")
@pytest.mark.parametrize(
    ("spec", "asked", "count"),
    [
        pytest.param("lookahead:w=3,n=3,g=2,lookup", PROMPTS[1:], TOKENS, marks=SLOW),
        pytest.param("lookahead:w=3,n=3,g=2,lookup", PROMPTS, TOKENS, marks=NIGHTLY),
        pytest.param("lookahead", PROMPTS[:1], TOKENS, marks=SLOW),
        pytest.param("lookahead", PROMPTS, TOKENS, marks=NIGHTLY),
        pytest.param("jacobi", PROMPTS, 2 * TOKENS, marks=SLOW),  # one guess in twenty stands
        pytest.param("jacobi", PROMPTS, 4 * TOKENS, marks=NIGHTLY),
    ],
)
def test_greedy_replies_of_the_bundled_model_are_plain_ones_but_for_near_ties(
    spec: str,
    asked: tuple[int, ...],
    count: int,
    demo: Model,
    paths: Paths,
    capsys: pytest.CaptureFixture[str],
):
    """A line leaves the cache as plain decoding does, a branch in another order."""
    context, accepted = demo.open(1024), 0
    prompts = [tokenized(demo)[number][1] for number in asked]
    with drafting_by(spec, demo, context, paths) as drafting:
        assert drafting.missing == ""
        for prompt in prompts:
            found = steps(context, prompt, count, first_hit_of(drafting))
            accepted += sum(step.accepted for step in found)
            allowed = 2 * rounding(context, prompt)
            if spec != "jacobi":
                allowed = max(allowed, 2 * branch_difference(context, prompt))
            for turned in divergences(context, prompt, said(found)):
                assert turned.margin <= allowed
                with capsys.disabled():
                    print(f" near-tie at token {turned.position + 1}: {turned.margin:.2g} logits ")
    context.close()
    assert accepted > 0


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_never_pays")
@pytest.mark.parametrize("name", ["jacobi", "lookahead"])
def test_where_it_cannot_pay_it_is_paused_with_the_reason(name: str, demo: Model, paths: Paths):
    context = demo.open(512)
    prompt = tokenized(demo)[PROMPTS[0]][1]
    with drafting_by(name, demo, context, paths) as drafting:
        found = steps(context, prompt, 40, drafting.controller)
        assert drafting.status.state is State.PAUSED
        assert name in drafting.status.reason
        assert "slower than plain" in drafting.status.reason
        assert sum(step.passed - len(step.tokens) for step in found[1:]) <= 4
    context.close()


@pytest.mark.usefixtures("llamacpp")
def test_a_model_without_branches_says_why(tiny_mamba: Path, paths: Paths):
    from backends import llamacpp

    model = llamacpp.load(tiny_mamba)
    with drafting_by("lookahead", model, model.open(64), paths) as drafting:
        assert drafting.status.state is State.OFF
        assert "running state" in drafting.status.reason
    model.close()


@pytest.mark.usefixtures("drafting_pays")
def test_auto_has_lookahead_where_passes_cost_next_to_nothing(
    llamacpp: ModuleType, tiny_llama: Callable[..., Path], paths: Paths
):
    model = llamacpp.load(tiny_llama())
    with drafting_by("auto", model, model.open(128), paths) as drafting:
        assert "lookahead" in drafting.names
        assert "jacobi" not in drafting.names
    model.close()


@pytest.mark.usefixtures("drafting_never_pays")
def test_auto_leaves_it_out_where_they_cost_what_plain_ones_do(
    llamacpp: ModuleType, tiny_llama: Callable[..., Path], paths: Paths
):
    model = llamacpp.load(tiny_llama())
    with drafting_by("auto", model, model.open(128), paths) as drafting:
        assert "lookahead" not in drafting.names
    model.close()
