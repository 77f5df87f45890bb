"""`ask --json`: one object with every key of the fixed schema, figures that agree, no guesses."""

import pytest

from app.cli.session import open_session
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from tests.app.conftest import AskJson, Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")


GREEDY = ("--temperature", "0", "--max-tokens", "8")

KEYS = {
    "": "schema text token_ids finish_reason lossless lossy model draft sampling stats",
    "model": """
        ref name path backend device architecture quantization parameters weight_bytes context
    """,
    "draft": "requested state reason drafters",
    "sampling": "temperature top_k top_p min_p repeat_penalty seed max_tokens",
    "stats": """
        prompt_tokens cached_prompt_tokens ahead_tokens completion_tokens steps drafted accepted
        acceptance drafted_share tokens_per_step accepted_by_position accepted_lengths
        steps_by_shape by_drafter load_seconds prefill_seconds ttft_seconds
        decode_seconds decode_tokens_per_second draft_seconds verify_seconds overhead_seconds
        plain_tokens_per_second speedup speedup_error bytes_per_token bandwidth_bytes_per_second
        bandwidth_source wall_tokens_per_second times_wall peak_memory_bytes
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["off", "self"])
def test_every_key_of_the_schema_is_there(ask_json: AskJson, draft: str) -> None:
    report = ask_json("Say hello.", *GREEDY, "--draft", draft)
    assert report["schema"] == 1
    for group, keys in KEYS.items():
        missing = set(keys.split()) - set(report[group] if group else report)
        assert not missing, group


@pytest.mark.slow
def test_standard_output_is_one_line_of_json_and_standard_error_is_silent(
    specchat: Specchat,
) -> None:
    ended = specchat("ask", "Say hello.", *GREEDY, "--json")
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""


@pytest.mark.slow
def test_figures_of_an_undrafted_answer(ask_json: AskJson) -> None:
    report = ask_json("Say hello.", *GREEDY, "--draft", "off")
    stats = report["stats"]
    assert report["draft"]["state"] == "off"
    assert report["draft"]["reason"]
    assert report["draft"]["drafters"] == []
    assert stats["completion_tokens"] == stats["steps"] == len(report["token_ids"])
    assert stats["ahead_tokens"] == 0  # the question comes with the command
    assert stats["by_drafter"] == {}
    assert (stats["drafted_share"], stats["speedup_error"]) == (0.0, None)
    assert stats["accepted_by_position"] == stats["accepted_lengths"] == []
    assert stats["steps_by_shape"] == {"none": stats["steps"] - 1, "line": 0, "paths": 0, "tree": 0}
    assert stats["acceptance"] is None
    assert stats["plain_tokens_per_second"] == stats["decode_tokens_per_second"] > 0


@pytest.mark.slow
def test_the_first_token_is_timed_from_the_request_and_not_from_loading(
    ask_json: AskJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def opened(options: SessionOptions) -> Session:
        session = open_session(options)
        order.append("loaded")
        return session

    def begun(request: Request) -> Reply:
        order.append("asked")
        return Reply(request)

    monkeypatch.setattr("app.cli.commands.ask.open_answerer", opened)
    monkeypatch.setattr("app.cli.commands.ask.Reply", begun)
    stats = ask_json("Say hello.", *GREEDY, "--draft", "off")["stats"]
    assert order == ["loaded", "asked"]
    assert stats["ttft_seconds"] > stats["prefill_seconds"] > 0


REPEAT = "Repeat this: " + "one two three four five six seven eight nine ten, " * 8


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_figures_of_a_drafted_answer_agree(ask_json: AskJson) -> None:
    report = ask_json(REPEAT, "--raw", *GREEDY, "--max-tokens", "60", "--draft", "lookup")
    stats, draft = report["stats"], report["draft"]
    assert (draft["requested"], draft["state"], draft["drafters"]) == ("lookup", "on", ["lookup"])
    assert draft["reason"] is None
    assert (report["lossless"], report["lossy"]) == (True, None)
    assert set(stats["by_drafter"]) == {"lookup"}
    of_lookup = stats["by_drafter"]["lookup"]
    assert set(of_lookup) == {"steps", "drafted", "accepted", "draft_seconds"}
    assert of_lookup["drafted"] == stats["drafted"] > 0
    assert of_lookup["accepted"] == stats["accepted"] <= stats["drafted"]
    assert of_lookup["steps"] <= stats["steps"]
    assert stats["acceptance"] == stats["accepted"] / stats["drafted"]
    assert stats["tokens_per_step"] == stats["completion_tokens"] / stats["steps"]
    assert all(0 <= share <= 1 for share in stats["accepted_by_position"])
    shapes, lengths = stats["steps_by_shape"], stats["accepted_lengths"]
    assert sum(shapes.values()) == stats["steps"] - 1
    assert sum(lengths) == shapes["line"] == of_lookup["steps"] > 0
    assert sum(length * count for length, count in enumerate(lengths)) == stats["accepted"]
    assert stats["completion_tokens"] == len(report["token_ids"])
    spent = stats["draft_seconds"] + stats["verify_seconds"] + stats["overhead_seconds"]
    assert spent == pytest.approx(stats["decode_seconds"])
    rate, plain = stats["decode_tokens_per_second"], stats["plain_tokens_per_second"]
    assert stats["speedup"] == pytest.approx(rate / plain)
    wall = stats["bandwidth_bytes_per_second"] / stats["bytes_per_token"]
    assert stats["wall_tokens_per_second"] == pytest.approx(wall)
    assert stats["times_wall"] == pytest.approx(rate / wall)
    assert stats["bandwidth_source"].startswith("measured: 1 thread")
    assert sum(stats["memory"].values()) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_never_pays")
def test_a_drafter_that_does_not_pay_is_paused_and_says_why(ask_json: AskJson) -> None:
    report = ask_json("Say hello.", *GREEDY, "--draft", "self:q8_0")
    assert report["draft"]["state"] == "parked"
    assert "slower than plain" in report["draft"]["reason"]
    assert report["stats"]["drafted"] == 0
    assert report["stats"]["memory"]["drafter_bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["off", "lookup"])
def test_what_was_not_measured_is_null(ask_json: AskJson, draft: str) -> None:
    """One token has no decode rate."""
    stats = ask_json("Say hello.", "--max-tokens", "1", "--draft", draft)["stats"]
    unknown = ("plain_tokens_per_second", "plain_source", "speedup", "times_wall")
    assert [stats[name] for name in unknown] == [None] * 4
    assert (stats["completion_tokens"], stats["decode_tokens_per_second"]) == (1, None)


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_a_seed_gives_the_plain_answer_drafted_by_lookup_too(ask_json: AskJson) -> None:
    sampled = ("--raw", "--temperature", "0.9", "--seed", "7", "--max-tokens", "60")
    drafted = ask_json(REPEAT, *sampled, "--draft", "lookup")
    plain = ask_json(REPEAT, *sampled, "--draft", "off")
    assert drafted["stats"]["drafted"] > 0
    assert drafted["token_ids"] == plain["token_ids"]


@pytest.mark.slow
def test_sampling_settings_are_reported_as_given(ask_json: AskJson) -> None:
    given = {
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.8,
        "min_p": 0.1,
        "repeat_penalty": 1.2,
        "seed": 9,
        "max_tokens": 2,
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    assert ask_json("Say hello.", *options)["sampling"] == given


@pytest.mark.slow
@pytest.mark.parametrize(("most", "reason"), [("40", "stop"), ("3", "length")])
def test_an_answer_ends_with_the_models_own_end_or_at_the_longest_allowed(
    ask_json: AskJson, most: str, reason: str
) -> None:
    report = ask_json("hi", "--temperature", "0", "--max-tokens", most, "--draft", "lookup")
    assert report["finish_reason"] == reason
    assert 3 <= report["stats"]["completion_tokens"] == len(report["token_ids"]) < 40


@pytest.mark.slow
def test_an_answer_ends_where_the_context_is_full(ask_json: AskJson) -> None:
    report = ask_json(
        "Tell me a long story.", "--ctx", "48", "--max-tokens", "40", "--temperature", "0"
    )
    assert report["finish_reason"] == "context"
    assert report["model"]["context"] == 48
    # The last token needs no place: nothing follows it.
    held = report["stats"]["prompt_tokens"] + report["stats"]["completion_tokens"] - 1
    assert held == 48
