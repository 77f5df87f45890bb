"""Models with a running state are drafted for, and draft: greedy replies are plain decoding's."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from backends.base import Context, Model
from tests.fixtures.hybrid_checks import (
    check_answers_again,
    check_costs,
    check_greedy_replies,
    check_law,
    check_oracle,
    check_session,
)
from tests.fixtures.hybrids import disturbed

pytestmark = pytest.mark.usefixtures("llamacpp")


@pytest.fixture
def context(hybrid: Model) -> Iterator[Context]:
    with closing(hybrid.open(512)) as context:
        yield context


@pytest.fixture(scope="session")
def drafter_model(
    llamacpp: ModuleType, hybrid_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    """A model of the same kind that is right about half of the time."""
    folder = tmp_path_factory.mktemp("disturbed")
    with closing(llamacpp.load(disturbed(hybrid_file, folder / hybrid_file.name, 0.2))) as model:
        yield model


@pytest.mark.parametrize(
    ("count", "length"), [(2, 48), pytest.param(12, 128, marks=pytest.mark.slow)]
)
def test_greedy_replies_are_plain_ones_with_every_drafter(
    hybrid: Model, context: Context, drafter_model: Model, count: int, length: int
) -> None:
    check_greedy_replies(hybrid, context, drafter_model, count, length)


def test_a_drafter_that_knows_the_answer_is_accepted_whole(context: Context) -> None:
    check_oracle(context)


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_sampled_replies_follow_the_models_own_law(
    hybrid: Model, context: Context, drafter_model: Model, count: int
) -> None:
    check_law(hybrid, context, drafter_model, count)


def test_another_answer_and_another_question_compute_little_again(context: Context) -> None:
    check_answers_again(context)


def test_costs_of_passes_are_measured_up_to_the_longest_draft(context: Context) -> None:
    check_costs(context)


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
@pytest.mark.parametrize("draft", ["lookup,ngram", "itself"])
def test_a_session_drafts_for_it_and_with_it(hybrid_file: Path, draft: str) -> None:
    check_session(hybrid_file, str(hybrid_file) if draft == "itself" else draft)
