"""Reports that are sent: what is in them is read back, and nothing of the user is in them."""

import getpass
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.bench.report import (
    FORMAT,
    SCHEMA,
    measured,
    public_draft,
    public_model,
    report,
)
from app.bench.results import Bench, DraftSeconds, Run
from app.bench.suites import SUITES, Suite, tasks
from app.bench.wording import table
from app.cli.report_file import machine
from app.drafting.draft_spec import DraftSpec, parse
from app.paths import Paths
from backends.hardware.bandwidth import Bandwidth
from decoding.events import Shape
from models.reference import HubReference, Reference
from tests.app.conftest import Specchat
from tests.fixtures.benches import KINDS, METHODS, synthetic_bench
from tests.fixtures.published import Published, outcomes
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.simulator import curve

INFO = ScriptedModel(["a"]).info
_KEYS = {
    "": "schema format specchat date machine model passes drafts series",
    "machine": "system processor physical_cores memory_bytes gpus engines"
    " bandwidth_bytes_per_second bandwidth_source",
    "model": "name architecture quantization parameters layers rollback active_experts weight_bytes"
    " bytes_per_token streamed_bytes_per_token engine device threads gpu_layers",
    "series": "method kind temperature speedup tokens seconds steps drafted accepted drafted_at"
    " accepted_at",
}


def checked(written: dict[str, Any]) -> dict[str, Any]:
    """A report as it is read: whatever is missing or unknown in it fails."""
    value: dict[str, Any] = json.loads(json.dumps(written))
    assert (value["format"], value["schema"]) == (FORMAT, SCHEMA)
    places = [("", value), ("machine", value["machine"]), ("model", value["model"])]
    for place, found in [*places, *(("series", one) for one in value["series"])]:
        assert found is None or set(found) == set(_KEYS[place].split())
    return value


def machine_of(sent: dict[str, Any], method: str, kinds: Sequence[str]) -> Published:
    """A machine for the simulator: what passes and drafts cost, and what is accepted, by kind."""
    plain, cost = sent["passes"]["1"], sent["drafts"][method]
    series = {
        one["kind"]: one
        for one in sent["series"]
        if one["method"] == method and one["temperature"] == 0 and one["kind"] in kinds
    }
    return Published(
        sent["machine"]["processor"],
        f"a report of {sent['date']}",
        curve({int(count): seconds / plain for count, seconds in sent["passes"].items()}),
        longest=len(max((one["drafted_at"] for one in series.values()), key=len)),
        acceptance={kind: _share(one) for kind, one in series.items()},
        gained={kind: one["speedup"] for kind, one in series.items() if one["speedup"]},
        draw=cost["draw"] / plain,
        begin=cost["begin"] / plain,
    )


def _share(series: dict[str, Any]) -> float:
    """Acceptance of a token, given that those before it in its draft are accepted."""
    before = (series["drafted_at"][0], *series["accepted_at"])
    judged = sum(map(min, series["drafted_at"], before))
    return sum(series["accepted_at"]) / judged


def sent_report() -> dict[str, Any]:
    bench = replace(synthetic_bench(), drafts={"self": DraftSeconds(0.001, 0.0001, 0.0)})
    return checked(report("0.1.0", bench.date, machine(None), **measured(bench, "demo", INFO, {})))


def test_figures_are_those_of_the_bench() -> None:
    bench, sent = synthetic_bench(), sent_report()
    assert len(sent["series"]) == len(METHODS) * len(KINDS) * 2
    place = ("auto", "code", 0.0)
    found = next(
        one for one in sent["series"] if (one["method"], one["kind"], one["temperature"]) == place
    )
    speedup = bench.speedup(*place)
    assert speedup is not None
    assert found["speedup"] == speedup.median
    assert found["tokens"] / found["seconds"] == pytest.approx(bench.rate(*place))
    assert sum(found["drafted_at"]) == found["drafted"]
    assert sum(found["accepted_at"]) == found["accepted"]
    assert sent["passes"] == {str(count): cost for count, cost in bench.cost_seconds.items()}
    assert (sent["model"]["name"], sent["model"]["layers"]) == ("demo", INFO.n_layers)


def test_a_report_is_enough_for_a_machine_of_the_simulator() -> None:
    """Which is what reports are for: on it, auto must not lose either."""
    known = machine_of(sent_report(), "self", ("chat", "code", "copy"))
    assert known.passes[16] == pytest.approx(6.6)
    assert known.draw == pytest.approx(0.1)
    assert all(0 < share <= 1 for share in known.acceptance.values())
    for one in outcomes(known, rounds=2):
        assert one.auto >= 0.98, one


def test_only_published_models_are_named() -> None:
    path = Path("/home/somebody/secret.gguf")
    assert public_model(Reference("secret.gguf", path)) is None
    assert public_model(Reference("qwen3-8b", path)) == "qwen3-8b"
    folder = Reference("mlx-community/Some-9B-4bit", Path("/home/somebody/some"))
    assert public_model(folder) == folder.name
    assert public_model(HubReference("mine/private", "mine/private")) is None
    chosen = HubReference(f"{folder.name}:home/somebody", folder.name)
    assert public_model(chosen) == folder.name


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("auto", "auto"),
        ("off", "off"),
        ("lookup,self:skip=1-2", "lookup,self:skip=1-2"),
        ("{path}", "model"),
        ("mtp:{path}", "mtp"),
        ("lookup,cascade(lookup,{path})", "lookup,cascade(lookup,model)"),
        ("tree({path}):nodes=4,depth=2", "tree(model):nodes=4,depth=2"),
    ],
)
def test_drafters_are_named_without_their_files(given: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.touch()
    text = given.format(path=path)
    spec: DraftSpec = parse(text, Paths.of_this_user())
    assert public_draft(spec) == told


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
def test_a_bench_writes_one(
    specchat: Specchat,
    tiny_llama: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(SUITES, "quick", Suite("quick", 1, 1, 4, 300.0, temperatures=(0.0,)))
    monkeypatch.setattr("app.bench.runner.tasks", lambda suite: tasks(suite)[:1])
    file = tmp_path / "report.json"
    model = str(tiny_llama())
    ended = specchat("bench", "--model", model, "--draft", model, "--report", str(file))
    assert ended.returncode == 0, ended.stderr
    text = file.read_text(encoding="utf-8")
    found = checked(json.loads(text))
    assert found["model"]["name"] is None
    assert found["passes"]["1"] > 0
    assert {"off", "lookup", "auto"} < {one["method"] for one in found["series"]}
    for private in (model, str(tmp_path), str(Path.home()), Path(model).name, platform.node()):
        assert private not in text
    assert f"/{getpass.getuser()}" not in text


def test_doctor_writes_one_of_the_machine_alone(specchat: Specchat, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert specchat("doctor", "--report", str(file)).returncode == 0
    found = checked(json.loads(file.read_text(encoding="utf-8")))
    assert (found["model"], found["series"]) == (None, [])
    assert found["machine"]["memory_bytes"] > 0
    assert set(found["machine"]["engines"]) == {"llamacpp", "mlx"}


def test_a_report_that_cannot_be_written_is_found_before_the_long_part(specchat: Specchat) -> None:
    for command in (("bench", "--html"), ("bench", "--report"), ("doctor", "--report")):
        ended = specchat(*command, "/nonexistent/report.json")
        assert ended.returncode == 2
        assert "cannot write" in ended.stderr


def test_two_results_do_not_go_to_one_file(
    specchat: Specchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.json"
    file.write_text("before")
    for arguments in (
        ("bench", "--json", "a.json"),
        ("bench", "--html", str(file)),
        ("doctor", "--json", "--output", "a.json"),
        ("doctor", "--json", "--output", str(tmp_path / ".." / tmp_path.name / "a.json")),
    ):
        ended = specchat(*arguments, "--report", "a.json")
        assert ended.returncode == 2
        assert "the same file" in ended.stderr
        assert file.read_text() == "before"


@pytest.mark.parametrize(
    "arguments", [("bench", "--report"), ("doctor", "--report"), ("bench", "--html")]
)
def test_standard_output_is_no_file_of_that_name(
    specchat: Specchat, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = specchat(*arguments, "-")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "only --json writes to standard output" in ended.stderr
    assert not [*tmp_path.iterdir()]


def test_what_somebody_called_a_kernel_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-annas-laptop")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("", ("", "", ""), ""))
    found = machine(Bandwidth(1e9, "measured"))
    assert found["system"].split()[1] == "6.1.0"


LEGEND = "! slower than plain in every round"


def row(text: str, method: str) -> list[str]:
    """The cells of a method at the first temperature."""
    return next(
        line.removeprefix(method).split() for line in text.splitlines() if line.startswith(method)
    )


def test_the_table_has_every_figure_in_its_place() -> None:
    assert (
        table(synthetic_bench())
        == """\
Temperature 0: speedup against plain decoding, median of the rounds
                        chat  code  copy  summary  maths  document  mean  tok/s acceptance
off                     1.00  1.00  1.00     1.00   1.00      1.00  1.00   80.0          -
lookup                  0.96! 1.08  2.31     1.33   1.02      1.71  1.33  101.0       49 %
self                    0.61! 0.72! 0.83!    0.70!  0.66!     0.74! 0.71!  55.9       29 %
auto                    1.00  1.12  2.64     1.41   1.05      1.88  1.42  106.7       52 %
llama-cpp-python lookup 0.74! 0.92! 1.77     1.10   0.81!     1.29  1.06   80.4          -

Temperature 0.8: speedup against plain decoding, median of the rounds
                        chat  code  copy  summary  maths  document  mean  tok/s acceptance
off                     1.00  1.00  1.00     1.00   1.00      1.00  1.00   80.0          -
lookup                  0.88! 1.00  2.23     1.25   0.94!     1.63  1.25   94.1       46 %
self                    0.53! 0.64! 0.75!    0.62!  0.58!     0.66! 0.63!  49.4       27 %
auto                    0.92! 1.04  2.56     1.33   0.97      1.80  1.34   99.7       50 %
llama-cpp-python lookup 0.66! 0.84! 1.69     1.02   0.73!     1.21  0.97!  73.6          -

! slower than plain in every round
rounds deviate by at most 9 % from their median (auto, document, temperature 0.8)
plain decoding reads 85.0 MB a token; memory gives 14.2 GB/s (measured: reading memory on
  2 threads): at most 167.1 tok/s; plain ran at 80.0
The model is small; larger ones gain more from drafting."""
    )


def test_what_noise_explains_is_not_called_slower() -> None:
    bench = synthetic_bench()
    fast = replace(bench.select("off", "code", 0.0)[0], method="self", round=0, tokens=10_000)
    more = (replace(fast, kind=kind, prompt=place) for place, kind in enumerate(bench.kinds))
    bench = replace(bench, runs=(*bench.runs, *more))
    assert "!" not in row(table(bench), "self")[0]


def test_missing_figures_are_dashes() -> None:
    bench = synthetic_bench()
    runs = (run for run in bench.runs if (run.method, run.kind) != ("lookup", "maths"))
    cells = row(table(replace(bench, runs=tuple(runs))), "lookup")
    assert cells == ["0.96!", "1.08", "2.31", "1.33", "-", "1.71", "-", "-", "51", "%"]
    assert row(table(replace(bench, runs=())), "auto") == ["-"] * 9


def test_a_long_name_is_written_in_full_within_the_columns() -> None:
    long = "smollm2-135m-instruct-q4_0-requantized-x"
    text = table(synthetic_bench((*METHODS, long)))
    assert long in text.splitlines()
    assert max(map(len, text.splitlines())) <= 92


def test_one_round_is_reported_first_and_has_no_spread() -> None:
    text = table(replace(synthetic_bench(), rounds=1))
    assert text.startswith("one round: ")
    assert "median" not in text


def test_what_is_read_from_disk_is_told() -> None:
    bench = replace(synthetic_bench(), streamed_bytes_per_token=40_000_000)
    assert "40.0 MB of them from disk; the disk's speed was not measured" in _flat(bench)
    told = _flat(replace(bench, disk_bytes_per_second=1e9))
    assert "the disk 1.0 GB/s: at most 25.0 tok/s" in told


def _flat(bench: Bench) -> str:
    return " ".join(table(bench).split())


def test_an_unknown_wall_is_said_to_be() -> None:
    bench = replace(synthetic_bench(), bandwidth_bytes_per_second=None, bandwidth_source=None)
    text = " ".join(table(bench).split())
    assert "memory bandwidth was not measured; plain ran at 80.0 tok/s" in text


def test_a_method_that_drafted_nothing_is_named() -> None:
    bench = synthetic_bench()
    idle = tuple(
        replace(run, drafted=0, accepted=0) if run.method == "self" else run for run in bench.runs
    )
    text = " ".join(table(replace(bench, runs=idle)).split())
    assert "drafted nothing at temperature 0.8, so the" in text
    assert "difference from plain is noise: self" in text
    assert "drafted nothing" not in table(bench)


def test_neither_one_round_nor_a_method_that_drafted_nothing_is_called_slower() -> None:
    """A bench stopped early said "slower than plain in every round", then that it was noise."""
    bench = synthetic_bench()
    first = tuple(run for run in bench.runs if run.round == 0)
    assert "!" not in table(replace(bench, runs=first, rounds=1))
    idle = tuple(
        replace(run, drafted=0, accepted=0) if run.method in ("self", "lookup") else run
        for run in bench.runs
    )
    bench = replace(bench, runs=idle, temperatures=(0.0,))
    assert row(table(bench), "self")[0] == "0.61"
    assert LEGEND in table(bench), "llama-cpp-python tells no steps, and may have drafted"


def without(bench: Bench, method: str, kind: str | None = None) -> Bench:
    left = (run for run in bench.runs if run.method != method or kind not in (None, run.kind))
    return replace(bench, runs=tuple(left))


def test_a_speedup_is_the_median_of_the_rounds() -> None:
    bench = synthetic_bench()
    found = bench.speedup("auto", "copy", 0.0)
    assert found is not None
    assert found.median == pytest.approx(2.64)
    assert found.least == pytest.approx(2.64 * (1 - 0.04 * 1.5))
    assert found.most == pytest.approx(2.64 * (1 + 0.03 * 1.5))


def test_each_round_is_compared_with_its_own_plain_run() -> None:
    """A round in which the whole machine ran at half its rate must not count as a slow method."""
    bench = synthetic_bench()
    slowed = tuple(
        replace(run, seconds=2 * run.seconds) if run.round == 1 else run for run in bench.runs
    )
    found = replace(bench, runs=slowed).speedup("lookup", "code", 0.0)
    expected = bench.speedup("lookup", "code", 0.0)
    assert found is not None
    assert expected is not None
    assert (found.median, found.least, found.most) == pytest.approx(
        (expected.median, expected.least, expected.most)
    )


def test_the_rate_of_a_kind_is_over_all_its_prompts() -> None:
    """Tokens over seconds, so that a short reply counts for little."""
    bench = replace(
        synthetic_bench(("off",)),
        runs=(
            Run("chat", 0, 0.0, "off", 0, tokens=90, seconds=1.0),
            Run("chat", 1, 0.0, "off", 0, tokens=10, seconds=1.0),
        ),
    )
    assert bench.rate("off", "chat", 0.0) == 50.0


@pytest.mark.parametrize("missing", ["auto", "off"])
def test_a_method_without_runs_has_no_figures(missing: str) -> None:
    bench = without(synthetic_bench(), missing)
    assert bench.speedup("auto", "chat", 0.0) is None
    assert bench.mean_speedup("auto", 0.0) is None
    assert bench.rate(missing) is None
    assert bench.acceptance(missing) is None
    assert bench.conditional_acceptance(missing) == []
    assert (bench.accepted_lengths(missing), bench.steps_by_shape(missing)) == ([], {})


def test_acceptance_is_accepted_of_drafted() -> None:
    bench = replace(
        synthetic_bench(("off", "auto")),
        runs=(
            replace(
                Run("chat", 0, 0.0, "auto", 0, 10, 1.0, 9, 4, 1, (3, 1), (1, 0), (6, 2, 1)),
                judged_at=(3, 1),
            ),
            replace(
                Run(
                    "chat", 0, 0.8, "auto", 0, 10, 1.0, 5, 6, 6, (2, 2, 2), (2, 2, 2), (3, 0, 0, 2)
                ),
                judged_at=(2, 2, 2),
            ),
        ),
    )
    assert bench.acceptance("auto") == 0.7
    assert bench.acceptance("auto", 0.0) == 0.25
    assert bench.acceptance("auto", 0.8) == 1.0
    assert bench.conditional_acceptance("auto") == pytest.approx([3 / 5, 2 / 3, 1.0])


def test_accepted_lengths_and_shapes_are_added_up_over_runs() -> None:
    one = Run("chat", 0, 0.0, "auto", 0, 10, 1.0, accepted_lengths=(1, 0, 2))
    other = Run("code", 0, 0.8, "auto", 0, 10, 1.0, accepted_lengths=(3,))
    runs = (
        replace(one, steps_by_shape={Shape.LINE: 2, Shape.TREE: 1}),
        replace(other, steps_by_shape={Shape.LINE: 3, Shape.NONE: 7}),
    )
    bench = replace(synthetic_bench(("off", "auto")), runs=runs)
    assert bench.accepted_lengths("auto") == [4, 0, 2]
    assert bench.accepted_lengths("auto", 0.8) == [3]
    assert bench.steps_by_shape("auto") == {"line": 5, "tree": 1, "none": 7}
    summary = json.loads(json.dumps(bench.as_json()))["summary"]
    warm = next(row for row in summary if (row["method"], row["temperature"]) == ("auto", 0.8))
    assert (warm["accepted_lengths"], warm["steps_by_shape"]) == ([3], {"line": 3, "none": 7})


def test_json_has_the_summary_first() -> None:
    bench = without(synthetic_bench(), "self", "maths")
    written = json.loads(json.dumps(bench.as_json()))
    assert list(written)[:2] == ["schema", "summary"]
    assert len(written["summary"]) == len(METHODS) * len(bench.temperatures)
    row = next(
        row for row in written["summary"] if row["method"] == "self" and row["temperature"] == 0.0
    )
    assert row["speedup"]["maths"] is None
    assert row["speedup"]["chat"]["median"] == pytest.approx(0.61)
    assert row["mean_speedup"] is None
    assert row["acceptance"] == bench.acceptance("self", 0.0)
