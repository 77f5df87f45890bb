"""When the prompt cache is saved and restored, on a scripted model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from app.loading.target_context import TargetContext
from app.prompt_cache import state_keeper
from app.prompt_cache.saved_states import SavedStates
from app.prompt_cache.state_keeper import WORTHWHILE, StateKeeper
from backends.base import ModelError
from decoding.prefill import prefill, reuse
from tests.fixtures.scripted import ScriptedContext, ScriptedModel

FIRST = [2] * 100
SECOND = [3] * 100
WORDS = ["one ", "two ", "three "]


class Chat:
    """A context with its keeper, as one run of the app has them."""

    def __init__(
        self, states: SavedStates, *, n_ctx: int = 1000, in_memory: int = 1_000_000
    ) -> None:
        self.model = ScriptedModel(WORDS)
        self.context: ScriptedContext = self.model.open(n_ctx)
        target = TargetContext(self.model, self.context)
        self.states = states
        self.keeper = StateKeeper(self.model.info, target, states, lambda held: in_memory)

    def answer(self, prompt: Sequence[int]) -> int:
        """Read a prompt as generate does; returns how many tokens were at hand."""
        self.keeper.prepare(prompt)
        at_hand = reuse(self.context, prompt)
        for _ in prefill(self.context, prompt):
            pass
        self.keeper.answered()
        return at_hand

    def read_ahead(self, prompt: Sequence[int]) -> None:
        """Read what is typed, which is not answered."""
        self.keeper.prepare(prompt)
        reuse(self.context, [*prompt, 0])
        for _ in prefill(self.context, prompt):
            pass

    @property
    def in_memory(self) -> list[int]:
        """Lengths of all copies in memory, the least recently used first."""
        return [len(kept.tokens) for kept in self.keeper._kept]

    @property
    def saved(self) -> list[int]:
        """Lengths of all states on disk."""
        return sorted(len(one.tokens) for one in self.states.of(self.key))

    @property
    def key(self) -> bytes:
        return state_keeper.state_key(self.model.info, self.context)


@pytest.fixture
def states(tmp_path: Path) -> SavedStates:
    return SavedStates(tmp_path / "states")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets contexts go back to nothing but a length, or to 0: marked(length)."""

    def mark(marked: int) -> None:
        def rollback_to(context: ScriptedContext, length: int) -> int:
            if length >= context.length:
                return context.length
            return marked if marked <= length else 0

        monkeypatch.setattr(ScriptedContext, "can_roll_back", False)
        monkeypatch.setattr(ScriptedContext, "rollback_to", rollback_to)

    return mark


def test_the_next_run_goes_on_where_the_last_one_ended(states: SavedStates) -> None:
    first = Chat(states)
    assert first.answer(FIRST) == 0
    first.keeper.close()
    second = Chat(states)
    assert second.answer([*FIRST, 5, 6]) == 100
    assert second.context.tokens == [*FIRST, 5, 6]


def test_a_conversation_that_gives_way_to_another_is_saved_and_comes_back(
    states: SavedStates,
) -> None:
    """By way of the disk, where there is no room in memory."""
    chat = Chat(states, in_memory=0)
    chat.answer(FIRST)
    chat.answer(SECOND)
    assert chat.saved == [100]
    assert chat.answer([*FIRST, 5]) == 100
    assert chat.saved == [100, 100]


def test_what_was_restored_while_text_is_typed_is_kept_for_its_answer(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's requests come in between, and no answer is given in the chat."""
    monkeypatch.setattr(state_keeper, "_CHANGE_SECONDS", 0.0)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.answer(SECOND)
    chat.read_ahead([*FIRST, 6])
    assert chat.in_memory == [100]  # the server's
    assert chat.answer([*SECOND, 8]) == 100
    assert chat.answer([*FIRST, 6, 6]) == 101


def test_conversations_that_take_turns_are_kept_in_memory_and_saved_in_idle_time(
    states: SavedStates,
) -> None:
    chat = Chat(states)
    chat.answer(FIRST)
    chat.answer(SECOND)
    assert chat.saved == []
    assert chat.in_memory == [100]
    assert chat.answer([*FIRST, 5]) == 100
    assert chat.in_memory == [100]  # the second: the first is in the context
    assert chat.answer([*SECOND, 6]) == 100
    chat.keeper.run(lambda: True)
    assert chat.saved == [101, 101]
    assert chat.keeper.due_in(9.0) is None
    assert Chat(states).answer([*FIRST, 5, 7]) == 101


def test_what_is_left_in_memory_at_the_end_is_saved(states: SavedStates) -> None:
    chat = Chat(states)
    for prompt in (FIRST, SECOND, [4] * 100):
        chat.answer(prompt)
    chat.keeper.close()
    assert chat.saved == [100, 100, 100]


def test_memory_is_bounded_and_the_least_recently_used_copy_goes_first(states: SavedStates) -> None:
    chat = Chat(states, in_memory=2 * 4 * 110)  # a token takes four bytes in a copy
    prompts = [[token] * 100 for token in range(2, 6)]
    for prompt in prompts:
        chat.answer(prompt)
        assert chat.keeper._held <= 2 * 4 * 110
    assert chat.in_memory == [100, 100]
    assert chat.answer([*prompts[0], 9]) == 0
    assert chat.answer([*prompts[3], 9]) == 100


def test_of_what_is_too_long_the_beginning_is_kept_unless_all_is_on_disk(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedContext, "kv_bytes_per_token", 4)
    chat = Chat(states, in_memory=4 * 150)
    chat.answer(FIRST * 3)
    chat.answer(SECOND)
    assert (chat.in_memory, chat.saved) == ([], [300])
    monkeypatch.setattr(state_keeper, "_CHANGE_SECONDS", 0.0)
    states.clear()
    chat.answer([4] * 300)
    chat.answer([5] * 100)
    assert chat.in_memory == [150]
    assert chat.saved == []
    assert chat.answer([*[4] * 300, 6]) == 150


def test_a_copy_that_comes_back_makes_room_for_the_one_it_takes_turns_with(
    states: SavedStates,
) -> None:
    chat = Chat(states, in_memory=4 * 110)  # for one
    chat.answer(FIRST)
    for turn in range(1, 4):
        assert chat.answer([*SECOND, *[7] * turn]) >= (turn > 1) * 100
        assert chat.answer([*FIRST, *[6] * turn]) >= 100


def test_two_conversations_with_one_beginning_both_stay(states: SavedStates) -> None:
    chat = Chat(states)
    one, other = [*FIRST, *SECOND], [*FIRST, *[4] * 100]
    assert [chat.answer(prompt) for prompt in (one, other)] == [0, 100]
    assert chat.answer([*one, 5]) == 200
    assert chat.answer([*other, 5]) == 200


def test_a_conversation_that_grows_is_kept_once(states: SavedStates) -> None:
    chat = Chat(states)
    for length in (1, 2, 3):
        chat.answer(FIRST * length)
        chat.answer([4] * 70)
    assert chat.in_memory == [300]


@pytest.mark.parametrize("end", [0, 90])
def test_where_there_is_no_going_back_the_marked_end_of_the_prompt_is_kept_too(
    states: SavedStates, marked: Callable[[int], None], end: int
) -> None:
    """For a next prompt that writes the answer otherwise."""
    marked(end)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.context.forward([8] * 80, 0)
    chat.keeper.answered()
    chat.answer(SECOND)
    assert chat.in_memory == [180, 90][: 2 if end else 1]
    assert chat.answer([*FIRST, *[9] * 80]) == end
    chat.answer(SECOND)
    assert chat.answer([*FIRST, *[8] * 80, 7]) == 180


def test_where_there_is_no_going_back_what_is_typed_is_dropped_from_the_copy(
    states: SavedStates, marked: Callable[[int], None]
) -> None:
    """Another conversation comes in between; the question may be changed before it is sent."""
    marked(100)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.read_ahead([*FIRST, *[7] * 8])
    chat.answer(SECOND)
    assert chat.in_memory == [100]
    assert chat.answer([*FIRST, *[7] * 3, 8]) == 100


def test_a_short_answer_is_saved_with_the_marked_end_of_its_prompt(
    states: SavedStates, marked: Callable[[int], None]
) -> None:
    """The copy that ends there takes the place of the whole, which was not saved yet."""
    marked(90)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.answer(SECOND)
    assert chat.in_memory == [90]
    chat.keeper.run(lambda: True)
    assert chat.saved == [90, 100]


@pytest.fixture
def restoring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(context: ScriptedContext, *_: object) -> NoReturn:
        context.truncate(0)
        raise ModelError("no")

    monkeypatch.setattr(ScriptedContext, "restore", refuses)


@pytest.mark.usefixtures("restoring_is_refused")
def test_a_copy_that_the_engine_refuses_is_given_up(states: SavedStates) -> None:
    chat = Chat(states)
    chat.answer(FIRST)
    chat.answer(SECOND)
    assert chat.answer([*FIRST, 5]) == 0
    assert chat.in_memory == [100]  # of the second, which was there


def test_the_state_that_spares_most_is_taken(states: SavedStates) -> None:
    chat = Chat(states)
    for prompt in (FIRST, [*FIRST, *SECOND], SECOND):
        chat.answer([*prompt, *SECOND[:1]])
        chat.keeper.close()
    assert Chat(states).answer([*FIRST, *SECOND, 7]) == 200


def test_what_is_gained_must_be_worth_the_reading(states: SavedStates) -> None:
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    other = Chat(states)
    assert other.answer(FIRST[: WORTHWHILE - 1]) == 0
    assert other.answer([*FIRST[:36], 9]) == 36
    assert other.answer([*FIRST, 9]) == 100  # exactly 64 more
    assert other.answer([*FIRST[:37], 8]) == 37
    assert other.answer([*FIRST, 9]) == 37


def test_short_conversations_and_unchanged_ones_are_not_saved(states: SavedStates) -> None:
    chat = Chat(states)
    chat.answer(FIRST[: WORTHWHILE - 1])
    assert not chat.keeper.is_unsaved
    chat.answer(FIRST)
    assert chat.keeper.is_unsaved
    chat.keeper.close()
    assert not chat.keeper.is_unsaved
    chat.answer([*FIRST, 4])
    assert not chat.keeper.is_unsaved
    chat.answer([*FIRST, *SECOND])
    assert chat.keeper.is_unsaved


def test_a_longer_state_takes_the_place_of_its_beginning(states: SavedStates) -> None:
    chat = Chat(states)
    for length in (1, 2, 3):
        chat.answer(FIRST * length)
        chat.keeper.close()
    assert chat.saved == [300]


def test_what_was_not_said_in_an_answer_is_not_saved(states: SavedStates) -> None:
    """Measuring a drafter uses the context too."""
    chat = Chat(states)
    chat.answer(FIRST)
    chat.context.truncate(0)
    chat.context.forward([4] * 200, 0)
    chat.keeper.close()
    chat.answer(SECOND)
    assert chat.saved == []


def test_another_size_of_context_or_another_model_is_passed_over(states: SavedStates) -> None:
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    assert Chat(states, n_ctx=999).answer([*FIRST, 5]) == 0
    assert Chat(states).answer([*FIRST, 5]) == 100


def test_a_model_that_cannot_roll_back_takes_only_a_whole_state(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedContext, "can_roll_back", False)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    chat.answer(FIRST * 2)
    chat.keeper.close()
    assert chat.saved == [100, 200]
    assert Chat(states).answer(FIRST) == 0
    assert Chat(states).answer([*FIRST, 5]) == 100
    chat = Chat(states, in_memory=0)
    assert chat.answer([*FIRST * 2, *SECOND]) == 200
    chat.answer([*FIRST * 2, 7])  # all must be forgotten for one other token
    assert chat.saved == [100, 200, 300]


def test_a_damaged_state_gives_way_to_the_next_best(states: SavedStates) -> None:
    chat = Chat(states)
    for prompt in ([*FIRST, *SECOND], [*FIRST, *[4] * 100]):
        chat.answer(prompt)
        chat.keeper.close()
    best = next(one for one in states.of(chat.key) if one.tokens[-1] == SECOND[0])
    best.path.write_bytes(best.path.read_bytes()[:-1] + b"\xff")
    assert Chat(states).answer([*FIRST, *SECOND, 5]) == 100
    assert not best.path.exists()


@pytest.mark.usefixtures("restoring_is_refused")
def test_a_state_that_the_engine_refuses_is_removed_and_the_prompt_computed(
    states: SavedStates,
) -> None:
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    assert Chat(states).answer([*FIRST, 5]) == 0
    assert chat.saved == []


@pytest.mark.parametrize(
    ("fails", "fault"),
    [
        ("tests.fixtures.scripted.ScriptedContext.save", ModelError("no")),
        ("tests.fixtures.scripted.ScriptedContext.save", MemoryError()),
        ("app.prompt_cache.state_keeper.fingerprint", FileNotFoundError()),  # of the model's file
    ],
)
def test_a_save_that_fails_is_not_tried_again(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch, fails: str, fault: Exception
) -> None:
    def fail(*_: object) -> NoReturn:
        raise fault

    monkeypatch.setattr(fails, fail)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    assert not chat.keeper.is_unsaved
    assert chat.answer(SECOND) == 0
    assert not states.folder.exists()


@pytest.mark.parametrize(
    ("bytes_each", "state_bytes", "enough"), [(20, 0, 2_000), (1, 2_000, 2_100)]
)
def test_a_state_beyond_the_bound_is_not_even_copied(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bytes_each: int,
    state_bytes: int,
    enough: int,
) -> None:
    """A running state counts once, though a context of MLX holds two copies to go back further."""
    monkeypatch.setattr(ScriptedContext, "kv_bytes_per_token", bytes_each)
    monkeypatch.setattr(ScriptedContext, "state_bytes", 2 * state_bytes)
    monkeypatch.setattr(ScriptedContext, "saved_state_bytes", state_bytes)
    for most_bytes in (enough - 1, enough):
        chat = Chat(SavedStates(tmp_path, most_bytes=most_bytes))
        chat.answer(FIRST)
        assert chat.keeper.is_unsaved == (most_bytes == enough)


def test_a_state_too_large_to_write_in_time_is_left_at_the_end(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedContext, "kv_bytes_per_token", 2_000_000)
    monkeypatch.setattr(state_keeper, "_CLOSE_SECONDS", 0.3)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.keeper.close()
    assert chat.keeper.is_unsaved
    assert chat.saved == []


def test_silence_is_used_to_save_unless_something_else_is_wanted(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_keeper, "_IDLE_SECONDS", 7.0)
    chat = Chat(states)
    assert chat.keeper.due_in(100.0) is None
    chat.answer(FIRST)
    assert chat.keeper.due_in(0.0) == pytest.approx(7.0, abs=0.1)
    assert (chat.keeper.due_in(8.0) or 1.0) < 0.0
    chat.keeper.run(lambda: False)
    assert chat.saved == []
    assert chat.keeper.is_unsaved
    chat.keeper.run(lambda: True)
    assert chat.saved == [100]
    assert chat.keeper.due_in(8.0) is None


@pytest.mark.parametrize("can_roll_back", [True, False])
def test_what_was_read_of_the_next_question_is_saved_along_if_it_can_be_forgotten(
    states: SavedStates, monkeypatch: pytest.MonkeyPatch, can_roll_back: bool
) -> None:
    monkeypatch.setattr(ScriptedContext, "can_roll_back", can_roll_back)
    chat = Chat(states)
    chat.answer(FIRST)
    chat.context.forward([7] * 8, 0)
    assert chat.keeper.is_unsaved == can_roll_back
    chat.keeper.run(lambda: True)
    assert chat.saved == ([108] if can_roll_back else [])
    assert not chat.keeper.is_unsaved
    assert Chat(states).answer([*FIRST, 5, 6]) == (100 if can_roll_back else 0)
