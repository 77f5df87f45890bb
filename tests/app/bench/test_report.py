"""Reports that are sent: what is in them is read back, and nothing of the user is in them."""

import getpass
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from app.bench.report import (
    FORMAT,
    SCHEMA,
    Machine,
    Report,
    ReportedModel,
    Series,
    public_draft,
    public_methods,
    public_model,
)
from app.bench.results import DraftSeconds
from app.bench.suite import SUITES, Suite, tasks
from app.cli.report_file import machine
from app.drafting.draft_spec import DraftSpec, parse
from app.paths import Paths
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import Gpu
from models.reference import HubReference, Reference
from tests.fixtures.benches import KINDS, METHODS, synthetic_bench
from tests.fixtures.published import Published, outcomes
from tests.fixtures.simulator import curve


def read_report(text: str) -> Report:
    """The report in a JSON text: whatever is missing or unknown in it fails."""
    value: dict[str, Any] = json.loads(text)
    assert (value.pop("format"), value.pop("schema")) == (FORMAT, SCHEMA)
    machine, model = value.pop("machine"), value.pop("model")
    return Report(
        machine=Machine(**machine | {"gpus": tuple(Gpu(**gpu) for gpu in machine["gpus"])}),
        model=ReportedModel(**model) if model else None,
        passes={int(count): seconds for count, seconds in value.pop("passes").items()},
        drafts={name: DraftSeconds(**cost) for name, cost in value.pop("drafts").items()},
        series=tuple(map(_series, value.pop("series"))),
        **value,
    )


def _series(value: dict[str, Any]) -> Series:
    drafted, accepted = value.pop("drafted_at"), value.pop("accepted_at")
    return Series(drafted_at=tuple(drafted), accepted_at=tuple(accepted), **value)


def machine_of(report: Report, method: str, kinds: Sequence[str]) -> Published:
    """A machine for the simulator: what passes and drafts cost, and what is accepted, by kind."""
    plain = report.passes[1]
    cost = report.drafts[method]
    series = {
        one.kind: one
        for one in report.series
        if one.method == method and one.temperature == 0 and one.kind in kinds
    }
    return Published(
        report.machine.processor,
        f"a report of {report.date}",
        curve({count: seconds / plain for count, seconds in report.passes.items()}),
        longest=len(max((one.drafted_at for one in series.values()), key=len)),
        acceptance={kind: _share(one) for kind, one in series.items()},
        gained={kind: one.speedup for kind, one in series.items() if one.speedup},
        draw=cost.draw / plain,
        begin=cost.begin / plain,
    )


def _share(series: Series) -> float:
    """Acceptance of a token, given that those before it in its draft are accepted."""
    before = (series.drafted_at[0], *series.accepted_at)
    judged = sum(map(min, series.drafted_at, before))
    return sum(series.accepted_at) / judged


Specchat = Callable[..., CompletedProcess[str]]

MACHINE = Machine(
    "macOS 26.1 arm64", "Apple M5 Max", 18, 128_000_000_000,
    (Gpu("Apple M5 Max", 90_000_000_000, 96_000_000_000, is_unified=True),),
    {"mlx": "MLX 0.32.4, mlx-lm 0.32.2", "llamacpp": None}, 5.2e11, "measured: the GPU",
)  # fmt: skip
MODEL = ReportedModel(
    "qwen3.8-27b", "qwen3_5", "4-bit", 27_320_000_000, 64, "bounded", 0, 15_000_000_000,
    15_100_000_000, 0, "MLX 0.32.4, mlx-lm 0.32.2", "GPU: Apple M5 Max", 18, None,
)  # fmt: skip


def report(**names: str) -> Report:
    bench = replace(synthetic_bench(), drafts={"self": DraftSeconds(0.001, 0.0001, 0.0)})
    return Report.of("0.1.0", MACHINE, MODEL, bench, names)


def test_what_is_sent_is_read_back() -> None:
    sent = report()
    assert read_report(json.dumps(sent.as_json())) == sent
    assert len(sent.series) == len(METHODS) * len(KINDS) * 2
    of_machine = Report("0.1.0", "2026-11-23", MACHINE)
    assert read_report(json.dumps(of_machine.as_json())) == of_machine


def test_figures_are_those_of_the_bench() -> None:
    bench, sent = synthetic_bench(), report()
    found = next(
        one for one in sent.series if (one.method, one.kind, one.temperature) == ("auto", "code", 0)
    )
    speedup = bench.speedup("auto", "code", 0.0)
    assert speedup is not None
    assert found.speedup == speedup.median
    assert found.tokens / found.seconds == pytest.approx(bench.rate("auto", "code", 0.0))
    assert sum(found.drafted_at) == found.drafted
    assert sum(found.accepted_at) == found.accepted
    assert sent.passes == bench.cost_seconds


def test_a_report_is_enough_for_a_machine_of_the_simulator() -> None:
    """Which is what reports are for: on it, auto must not lose either."""
    known = machine_of(report(), "self", ("chat", "code", "copy"))
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
    methods = ("off", text, f"{text}, always 3")
    named = {method: public_methods(methods, text, spec).get(method, method) for method in methods}
    assert named[f"{text}, always 3"] == f"{told}, always 3"


def test_a_method_that_begins_like_a_file_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("look").touch()
    methods = ("off", "lookup", "lookup, always 3", "look", "look, always 3", "llama.cpp lookup")
    told = public_methods(methods, "look", parse("look", Paths.of_this_user()))
    expected = ("off", "lookup", "lookup, always 3", "model", "model, always 3", "llama.cpp lookup")
    assert tuple(told.get(method, method) for method in methods) == expected


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
    found = read_report(text)
    assert found.model is not None
    assert found.model.name is None
    assert found.passes[1] > 0
    assert {"off", "lookup", "auto"} < {one.method for one in found.series}
    for private in (model, str(tmp_path), str(Path.home()), Path(model).name, platform.node()):
        assert private not in text
    assert f"/{getpass.getuser()}" not in text


def test_doctor_writes_one_of_the_machine_alone(specchat: Specchat, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert specchat("doctor", "--report", str(file)).returncode == 0
    found = read_report(file.read_text(encoding="utf-8"))
    assert (found.model, found.series) == (None, ())
    assert found.machine.memory_bytes > 0
    assert set(found.machine.engines) == {"llamacpp", "mlx"}


def test_a_report_that_cannot_be_written_is_found_before_the_long_part(specchat: Specchat) -> None:
    for command in ("bench", "doctor"):
        ended = specchat(command, "--report", "/nonexistent/report.json")
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
    assert found.system.split()[1] == "6.1.0"
