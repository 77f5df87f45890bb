"""Published suites: their forms, their figures by hand, benches that go on, and comparisons."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from app.bench.comparison import Comparison, old_bench
from app.bench.methods import Methods, ours
from app.bench.page import page
from app.bench.results import Bench, DraftSeconds, Run
from app.bench.runner import Runner
from app.bench.suites import SUITES, Suite, limited, suite_of, tasks
from app.bench.wording import table
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import UsageError
from backends.chat.message import Message
from decoding.draft import Draft, KeepOn
from tests.app.conftest import Specchat
from tests.fixtures.benches import synthetic_bench
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain
from tests.fixtures.scripted import ScriptedModel, opened

SPEC = [
    {"question_id": 81, "category": "writing", "turns": ["A poem.", "A longer one."]},
    {"question_id": 82, "category": "writing", "turns": ["A letter.", "To a queen."]},
    {"question_id": 91, "category": "math", "turns": ["Two and two?", "And two?"]},
    {"question_id": 161, "category": "translation", "turns": ["Auf Deutsch: a boat"]},
    {"question_id": 321, "category": "qa", "turns": ["Who was here?"], "reference": ["Nobody."]},
    {"question_id": 322, "category": "qa", "turns": ["Who is there?"]},
]
MT = [{"question_id": 81, "category": "writing", "prompt": ["A poem.", "Longer."], "reference": []}]
SPEED = [
    {"question_id": "a1", "category": "coding", "sub_category": "rust", "turns": ["Sort."],
     "source": "own", "src_id": "1", "difficulty": "easy", "multiturn": False},
]  # fmt: skip


def written(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return file


def asked(file: Path, folder: Path) -> list[tuple[str, int, str]]:
    found = tasks(suite_of(str(file), folder))
    return [(task.kind, task.number, task.turns[0]) for task in found]


def test_spec_bench_counts_topics_of_mt_bench_as_one_kind_and_asks_kinds_by_turns(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "questions.jsonl", SPEC)
    assert asked(file, tmp_path) == [
        ("mt_bench", 0, "A poem."),
        ("translation", 0, "Auf Deutsch: a boat"),
        ("qa", 0, "Who was here?"),
        ("mt_bench", 1, "Two and two?"),
        ("qa", 1, "Who is there?"),
        ("mt_bench", 2, "A letter."),
    ]
    suite = suite_of(str(file), tmp_path)
    assert (suite.max_tokens, suite.temperatures, suite.rounds) == (1024, (0.0,), 1)
    assert suite.context >= 2 * (1024 + 60), "a template's system prompt has room in each turn"
    few = limited(suite, 1, 16)
    assert [task.number for task in tasks(few)] == [0, 0, 0]
    assert few.max_tokens == 16
    with pytest.raises(UsageError, match="cannot be 4096"):
        limited(few, None, 4096)


def test_other_forms(tmp_path: Path) -> None:
    mt = written(tmp_path / "mt-bench.jsonl", MT)
    (task,) = tasks(suite_of("mt-bench", tmp_path))
    assert (task.kind, task.turns) == ("writing", ("A poem.", "Longer."))
    assert suite_of(str(mt), tmp_path).max_tokens == 1024
    speed = suite_of(str(written(tmp_path / "own.jsonl", SPEED)), tmp_path)
    assert (speed.max_tokens, tasks(speed)[0].kind, speed.name) == (4096, "coding", "own.jsonl")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ('{"turns": ["a"]}\nno', "line 2 is no JSON"),
        ("[1]", "line 1 is no JSON object"),
        ('{"turns": "a"}', "line 1 has no turns"),
        ('{"turns": ["a", 1]}', "line 1 has no turns"),
        ('{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]}', "script"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match="is no file of questions") as refused:
        tasks(suite_of(str(file), tmp_path))
    assert why in refused.value.why


def test_where_a_missing_file_comes_from_is_told(tmp_path: Path) -> None:
    for name in ("spec-bench", "mt-bench", "speed-bench"):
        with pytest.raises(UsageError, match=f"questions of {name} are missing") as refused:
            suite_of(name, tmp_path)
        assert str(tmp_path / f"{name}.jsonl") in refused.value.why
        assert ".com/" in refused.value.remedy or ".co/" in refused.value.remedy


class Told(IdleDrafter):
    """Drafts two tokens of the script after some of its tokens, of which some are wrong."""

    name = "told"

    def __init__(self, drafts: dict[int, tuple[int, int]]) -> None:
        self._drafts = drafts

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens = self._drafts.get(history[-1], ())[:limit]
        return certain(tokens, self.name, 0.9) if tokens else super().propose(history, limit)


@pytest.fixture
def session() -> Iterator[Session]:
    """What it says is a to f, as tokens 2 to 7, and an end."""
    open_session = opened(ScriptedModel([*"abcdef"]))
    with closing(open_session(SessionOptions(), Paths.of_this_user(), lambda _: None)) as session:
        yield session


def compared(session: Session) -> Methods:
    """Plain, and one whose drafts after a are right, after d wrong, and after e half right."""
    told = Told({2: (3, 4), 5: (2, 2), 6: (7, 2)})
    return Methods(ExitStack(), [ours("off", session, None), ours("told", session, told)])


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return suite_of(str(written(tmp_path / "questions.jsonl", SPEC)), tmp_path)


def finished(runner: Runner) -> Bench:
    for _ in runner.run():
        pass
    return runner.bench


def test_figures_are_those_that_are_counted_by_hand(session: Session, suite: Suite) -> None:
    """After a: b c | d, three tokens; after d: none | e, one; after e: f | end, two."""
    bench = finished(Runner(session, compared(session), suite))
    assert bench.kinds == ("mt_bench", "translation", "qa")
    assert len(bench.select("told")) == 3 * 2 + 1 + 2
    for kind, questions in (("mt_bench", 3), ("translation", 1), ("qa", 2), (None, 6)):
        found = bench.figures("told", kind, 0.0)
        assert found.questions == questions
        assert found.mean_accepted_tokens == 6 / 3
        assert found.acceptance_length == 7 / 4
        assert found.acceptance == 3 / 6
        assert found.conditional_acceptance == [2 / 3, 1 / 2]
        plain = bench.figures("off", kind, 0.0)
        assert (plain.mean_accepted_tokens, plain.acceptance) == (1.0, None)
        assert plain.end_to_end_speedup == 1.0
    assert all(run.same_tokens for run in bench.runs)
    assert all(run.ttft_seconds is not None for run in bench.runs)
    assert "6 of 6 questions, up to 1,024 tokens each" in bench.notes


def test_turns_are_one_conversation_with_own_answers(session: Session, suite: Suite) -> None:
    methods, prompts, held = compared(session), list[list[int]](), list[int]()
    plain = methods.chosen[0]

    def reply(prompt: Sequence[int], *rest: Any) -> Any:
        prompts.append(list(prompt))
        held.append(session.context.facts.length)
        return plain.reply(prompt, *rest)

    methods.chosen[:] = [replace(plain, reply=reply)]
    finished(Runner(session, methods, suite))
    first, answer, second = (
        Message("user", "A poem."),
        Message("assistant", "abcdef"),
        Message("user", "A longer one."),
    )
    assert prompts[1] == session.template.prompt([first]).tokens
    assert prompts[2] == session.template.prompt([first, answer, second]).tokens
    assert held[1] == 0, "a first turn is read from its beginning"
    assert held[2] == len(prompts[1]) + 6, "what the context holds at the second is kept"


def question(number: int, method: str, seconds: float, answer: str = "x", turn: int = 0) -> Run:
    return Run(
        "qa", number, 0.0, method, 0, 10, seconds, turn=turn, ttft_seconds=1.0, answer=answer,
        steps=5 if method != "other" else 0,
    )  # fmt: skip


def timed(*seconds: float, plain: float = 1.0, **changed: Any) -> Bench:
    runs = [question(number, "off", plain, **changed) for number in range(len(seconds))]
    runs += [question(number, "auto", one) for number, one in enumerate(seconds)]
    made = replace(synthetic_bench(("off", "auto")), kinds=("qa",), temperatures=(0.0,), rounds=1)
    return replace(made, runs=tuple(runs), suite="own.jsonl", questions_sha256="abc")


def test_speedups_and_their_errors_are_those_of_a_calculation_by_hand() -> None:
    bench = timed(0.5, 1.0, 0.25)
    speedup = bench.speedup("auto", "qa", 0.0)
    assert speedup is not None
    assert speedup.median == pytest.approx(30 / 1.75 / 10)
    # without one question each: 1.6, 2.667 and 1.333, of standard deviation 0.576
    assert speedup.error == pytest.approx(2 * 2**0.5 * 0.576062, rel=1e-5)
    assert bench.mean_error("auto", 0.0) == pytest.approx(speedup.error)
    found = bench.figures("auto", None, 0.0)
    # 11 tokens in 1.5, 2 and 1.25 seconds, against 5.5 a second
    assert found.end_to_end_speedup == pytest.approx((11 / 1.5 + 5.5 + 8.8) / 3 / 5.5)
    assert (found.ttft_seconds, found.decode_tokens_per_second) == (1.0, 30 / 1.75)
    assert (found.mean_accepted_tokens, found.acceptance_length) == (2.0, 11 / 6)
    few = timed(0.5, 1.0).speedup("auto", "qa", 0.0)
    assert few is not None
    assert few.error is None


def test_a_question_that_one_method_alone_answered_tells_no_speedup() -> None:
    bench = timed(0.5, 1.0, 0.25)
    alone = replace(question(3, "off", 100.0), tokens=1)
    assert replace(bench, runs=(*bench.runs, alone)).speedup("auto", "qa", 0.0) == bench.speedup(
        "auto", "qa", 0.0
    )


def test_second_turns_count_for_their_question_but_not_for_its_first_token() -> None:
    bench = timed(0.5, 1.0, 0.25)
    later = replace(question(0, "auto", 1.0, turn=1), ttft_seconds=9.0)
    found = replace(bench, runs=(*bench.runs, later)).figures("auto", "qa", 0.0)
    assert (found.questions, found.ttft_seconds) == (3, 1.0)
    assert found.acceptance_length == pytest.approx((22 / 12 + 11 / 6 + 11 / 6) / 3)


def test_table_and_page_have_every_figure_by_kind() -> None:
    bench = timed(0.5, 1.0, 0.25)
    row = "auto 1.71 ± 1.63 1.31 2.00 1.83 - 1.00 s 17.1"
    told = [" ".join(line.split()) for line in table(bench).splitlines()]
    assert told.count(row) == 2, "of the kind, and of all kinds"
    assert told[0] == "one round; ± is twice the standard error over the questions of a kind"
    assert max(map(len, table(bench).splitlines())) <= 92
    html = page(bench, ["Against the bench of yesterday:", "  nothing"])
    for cell in ("1.71 ± 1.63", "1.31", "1.83", "1.00 s", "Against the bench of yesterday:"):
        assert f">{cell}<" in html
    slow = timed(2.0, 2.0, 2.0)
    drafted = tuple(replace(run, drafted=run.method != "off") for run in slow.runs)
    text = table(replace(slow, runs=drafted))
    assert "0.50 ± 0.00!" in text
    assert "! slower than plain by more than its error" in text


def without_times(bench: Bench) -> dict[str, Any]:
    runs = [replace(run, seconds=0.0, ttft_seconds=0.0, overhead_seconds=0.0) for run in bench.runs]
    return asdict(replace(bench, runs=tuple(runs), date="", notes=()))


@pytest.mark.parametrize("name", ["quick", "spec-bench"])
def test_a_bench_that_was_killed_goes_on_to_the_same_result(
    session: Session, suite: Suite, name: str, tmp_path: Path
) -> None:
    if name == "quick":
        suite = replace(SUITES[name], prompts=1, rounds=2)
    whole = finished(Runner(session, compared(session), suite))
    folder = tmp_path / "benches"
    begun = Runner(session, compared(session), suite, folder)
    for place, _ in enumerate(begun.run()):
        if place == 5:  # two questions are whole, and a third is half measured
            break
    (file,) = folder.iterdir()
    assert len(begun.bench.runs) == file.read_text().count('"kind"') + 1, (
        "what is half measured too"
    )
    with file.open("a") as half:
        half.write('\n[{"kind": "mt_')
    assert "poem" not in file.read_text()
    runner = Runner(session, compared(session), suite, folder)
    places = [done for done, _, _ in runner.run()]
    assert places[0] == 4
    assert without_times(runner.bench) == without_times(whole)
    assert " answers are from before it was ended" in " ".join(runner.bench.notes)
    assert not [*Runner(session, compared(session), suite, folder).run()], "it is complete"
    runner.forget()
    assert not [*folder.iterdir()]


def test_another_bench_does_not_go_on_with_it(
    session: Session, suite: Suite, tmp_path: Path
) -> None:
    finished(Runner(session, compared(session), limited(suite, 1, 4), tmp_path))
    for other in (limited(suite, 2, 4), limited(suite, 1, 5)):
        first = next(iter(Runner(session, compared(session), other, tmp_path).run()))
        assert first[0] == 0


def test_a_bench_is_read_back_from_its_json(tmp_path: Path) -> None:
    """Also one from before the file's hash was written."""
    bench = replace(synthetic_bench(), drafts={"self": DraftSeconds(0.1, 0.2, 0.3)})
    old = bench.as_json()
    del old["questions_sha256"], old["questions"]
    file = tmp_path / "old.json"
    file.write_text(json.dumps(old))
    assert old_bench(file, SUITES["quick"]) == bench


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": 1}', '{"runs": [{}]}'])
def test_what_is_no_bench_is_refused(text: str, tmp_path: Path) -> None:
    why = "suite is missing or of another type" if "{" in text else "it holds no JSON object"
    file = tmp_path / "old.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"is no result of bench --json: {why}"):
        old_bench(file, SUITES["quick"])
    with pytest.raises(UsageError, match="cannot read"):
        old_bench(tmp_path / "missing", SUITES["quick"])


def test_a_bench_of_other_questions_is_refused_before_the_measurement(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps(timed(1.0, 1.0, 1.0).as_json()))
    with pytest.raises(UsageError, match="cannot be compared"):
        old_bench(file, SUITES["quick"])


def test_a_bench_of_another_schema_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "old.json").write_text(
        json.dumps(synthetic_bench().as_json() | {"schema": 99})
    )
    with pytest.raises(UsageError, match="cannot be compared: its schema is 99"):
        old_bench(file, SUITES["quick"])


def test_changes_are_told_where_they_are_beyond_their_errors() -> None:
    old, new = timed(0.5, 1.0, 0.25), timed(1.0, 2.0, 0.5, answer="y")
    (plain, auto) = Comparison.of(old, new).changes
    assert (plain.ratio, plain.error, plain.is_change) == (1.0, 0.0, False)
    assert auto.ratio == pytest.approx(0.5)
    assert auto.is_change
    told = Comparison.of(old, replace(new, backend="newer"))
    assert told.other_answers == (3, 3)
    assert told.lines() == [
        f"Against the bench of {old.date}:",
        f"  backend: {old.backend} before, newer now",
        "  auto, qa, temperature 0: speedup 1.71 before, 0.86 now, ratio 0.50 ± 0.00",
        "  1 rates did not change by more than their errors",
        "  3 of 3 plain answers at temperature 0 differ",
    ]


def test_noise_is_no_change_and_a_slower_machine_no_lower_speedup() -> None:
    old = timed(0.5, 0.5, 0.5)
    (_, noisy) = Comparison.of(old, timed(0.4, 0.5, 0.62)).changes
    assert not noisy.is_change
    (plain, auto) = Comparison.of(old, timed(1.0, 1.0, 1.0, plain=2.0)).changes
    assert (plain.ratio, plain.is_change) == (0.5, True)
    assert (auto.ratio, auto.is_change) == (1.0, False)


def test_too_few_answers_have_no_error() -> None:
    found = Comparison.of(timed(0.5, 0.5), timed(5.0, 5.0))
    assert not any(change.is_change for change in found.changes)
    assert "of 2 it is unknown" in found.lines()[1]


@pytest.mark.parametrize("asked", [("--questions", "3"), ("--max-tokens", "129")])
def test_more_than_a_suite_has_is_refused(specchat: Specchat, asked: tuple[str, str]) -> None:
    ended = specchat("bench", "--suite", "quick", *asked)
    assert ended.returncode == 2
    assert f"{' cannot be '.join(asked)}: quick has at most" in ended.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_the_command(specchat: Specchat, tiny_llama: Callable[..., Path], tmp_path: Path) -> None:
    file, found = written(tmp_path / "own.jsonl", SPEC), tmp_path / "found.json"
    asks = ("bench", "--model", str(tiny_llama()), "--suite", str(file))
    asks = (*asks, "--questions", "1", "--max-tokens", "8", "--json", str(found))
    ended = specchat(*asks)
    assert ended.returncode == 0, ended.stderr
    bench = json.loads(found.read_text())
    assert (bench["suite"], bench["questions"], bench["max_tokens"]) == ("own.jsonl", 3, 8)
    assert bench["comparison"] is None
    assert {"llama-cpp-python plain", "llama-cpp-python lookup"} < set(bench["methods"])
    rows = {row["method"]: row for row in bench["summary"]}
    assert rows["auto"]["overall"]["questions"] == 3
    assert rows["auto"]["overall"]["ttft_seconds"] > 0
    assert rows["llama-cpp-python plain"]["kinds"]["qa"]["end_to_end_speedup"] > 0
    assert not [*Paths.of_this_user().benches.iterdir()]
    again = specchat(*asks, "--compare", str(found))
    assert again.returncode == 0, again.stderr
    assert "0 of 4 plain answers at temperature 0 differ" in again.stdout
    assert json.loads(found.read_text())["comparison"]["other_answers"] == [0, 4]
    refused = specchat(*asks, "--report", str(tmp_path / "report.json"))
    assert (refused.returncode, "--report is for named suites" in refused.stderr) == (2, True)
