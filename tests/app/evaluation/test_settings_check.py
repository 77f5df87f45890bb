"""`doctor` tells of every setting that cannot be used, and ends as commands that use it do."""

import json

import pytest

from app.evaluation.settings_check import check_settings
from app.paths import Paths
from tests.app.conftest import Specchat, Write

REFUSED = [
    ("temperature", "5000", "at most 100"),
    ("backend", '"vulkan"', "llamacpp, mlx"),
    ("offline", '"perhaps"', "true or false"),
    ("model", '"dmo"', "Nearest: demo"),
    ("draft", '"sefl"', "Nearest: self"),
    ("draft", '"lookup,"', "gap"),
    ("draft", '"self:skip=99"', "layers 0 to 29"),
    ("draft", '"tree(self:experts=2)"', "it has none"),
    ("ctx", "100000000", "at most 8,192"),
    ("gpu_layers", "3", "processor alone"),
    ("kv", '"q3_k"', "it is one of f16, q8_0, q4_0"),
    ("zzz", "1", "Known: "),
]


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(("key", "value", "why"), REFUSED)
def test_what_ask_refuses_of_the_file_is_told(
    specchat: Specchat, write_settings: Write, key: str, value: str, why: str
) -> None:
    path = write_settings(f"{key} = {value}\n")
    assert specchat("ask", "hi").returncode == 2
    (fault,) = check_settings(Paths.of_this_user())
    assert (fault.key, fault.source) == (key, str(path))
    assert key in fault.what
    assert why in str(fault)
    assert fault.remedy


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ctx", "many"),
        ("temperature", "hot"),
        ("learn", "perhaps"),
        ("draft", "sefl"),
        ("system", "\udcff"),
    ],
)
def test_what_ask_refuses_of_a_variable_is_told(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SPECCHAT_{name.upper()}", value)
    assert specchat("ask", "hi").returncode == 2
    (fault,) = check_settings(Paths.of_this_user())
    assert (fault.key, fault.source) == (name, f"SPECCHAT_{name.upper()}")
    assert fault.what.startswith(f"SPECCHAT_{name.upper()} cannot be ")


@pytest.mark.usefixtures("llamacpp")
def test_all_that_is_wrong_is_told_beside_everything_else(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, write_settings: Write
) -> None:
    path = write_settings(
        'temperature = "hot"\ndraft = "sefl"\n[keys]\nnew = "f4"\n[presets.a]\ntop_p = 0\n'
    )
    monkeypatch.setenv("SPECCHAT_CTX", "many")
    ended = specchat("doctor", "--json")
    report = json.loads(ended.stdout)
    assert ended.returncode == 2
    assert report["backend"] == "llamacpp"
    assert report["settings"]["file"] == str(path)
    keys = [fault["key"] for fault in report["settings"]["faults"]]
    assert keys == ["temperature", "presets.a.top_p", "keys", "ctx", "draft"]
    shown = specchat("doctor")
    assert shown.returncode == 2
    assert shown.stderr == ""
    assert shown.stdout.count("\nwrong setting ") == len(keys)
    assert "\nversions " in shown.stdout
    assert "SPECCHAT_CTX cannot be 'many': it must be a whole number" in shown.stdout


def test_a_file_that_cannot_be_read_is_told_once(write_settings: Write) -> None:
    write_settings("temperature =\n")
    (fault,) = check_settings(Paths.of_this_user())
    assert fault.key == ""
    assert "line 1" in fault.why


def test_an_unknown_variable_is_reported_with_the_nearest_if_any_is_like_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FOO", "TEMPRATURE"):
        monkeypatch.setenv(f"SPECCHAT_{name}", "0")
    alone, misspelt = check_settings(Paths.of_this_user())
    assert str(alone) == "unknown variable SPECCHAT_FOO. Unset SPECCHAT_FOO."
    assert misspelt.source == "SPECCHAT_TEMPRATURE"
    assert misspelt.what.endswith(". Nearest: SPECCHAT_TEMPERATURE")


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(
    ("name", "value"), [("ahead", "nonsense"), ("port", "abc"), ("anything", "1")]
)
def test_a_variable_that_ask_does_not_read_is_told_and_stops_nothing(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SPECCHAT_{name.upper()}", value)
    assert specchat("ask", "hi", "--max-tokens", "1").returncode == 0
    (fault,) = check_settings(Paths.of_this_user())
    assert fault.source == f"SPECCHAT_{name.upper()}"


def test_an_unknown_theme_is_reported_with_the_known_ones(write_settings: Write) -> None:
    write_settings('theme = "zz"\n')
    (fault,) = check_settings(Paths.of_this_user())
    assert fault.key == "theme"
    assert "textual-dark" in fault.why
    assert "nord" in fault.why
    write_settings('theme = "nord"\n')
    assert check_settings(Paths.of_this_user()) == []


def test_a_variable_takes_the_place_of_what_the_file_says(
    monkeypatch: pytest.MonkeyPatch, write_settings: Write
) -> None:
    write_settings('model = "nobody-knows-it"\n')
    monkeypatch.setenv("SPECCHAT_MODEL", "demo")
    assert check_settings(Paths.of_this_user()) == []


@pytest.mark.usefixtures("llamacpp")
def test_a_model_that_may_not_be_downloaded_is_told(write_settings: Write) -> None:
    write_settings('model = "qwen3-4b"\noffline = true\n')
    (fault,) = check_settings(Paths.of_this_user())
    assert fault.key == "model"
    assert "offline" in fault.why + fault.remedy


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(("more", "blamed"), [("", "model"), ("ctx = 4096\n", "ctx")])
def test_a_model_without_the_memory_for_it_is_told(
    write_settings: Write, monkeypatch: pytest.MonkeyPatch, more: str, blamed: str
) -> None:
    write_settings(f'model = "qwen3-4b"\nstream = "off"\n{more}')
    monkeypatch.setattr("app.evaluation.settings_check.free_memory", lambda *_: 1 << 30)
    (fault,) = check_settings(Paths.of_this_user())
    assert fault.key == blamed
    assert "1.1 GB are free" in fault.why
    write_settings('model = "qwen3-4b"\nctx = 512\n')
    assert check_settings(Paths.of_this_user()) == []  # it may stream


@pytest.mark.usefixtures("llamacpp")
def test_sound_settings_are_told_by_their_file_alone(
    specchat: Specchat, write_settings: Write
) -> None:
    path = write_settings('model = "demo"\ndraft = "lookup"\nctx = 512\ntemperature = 0.2\n')
    ended = specchat("doctor")
    assert ended.returncode == 0
    assert f"\nsettings        {path}\n" in ended.stdout
    assert "wrong setting" not in ended.stdout


@pytest.mark.parametrize("command", [("path", "config"), ("chats", "list"), ("--version",)])
def test_a_wrong_variable_stops_no_command_without_that_option(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SPECCHAT_CTX", "many")
    assert specchat(*command).returncode == 0


def test_with_a_server_only_its_address_is_looked_at(write_settings: Write) -> None:
    write_settings('backend = "remote"\nmodel = "any/name"\nurl = "http://127.0.0.1:1"\n')
    assert check_settings(Paths.of_this_user()) == []
    write_settings('backend = "remote"\nurl = "box"\n')
    (fault,) = check_settings(Paths.of_this_user())
    assert (fault.key, "http" in fault.why) == ("url", True)
    write_settings('backend = "remote"\n')
    assert [one.key for one in check_settings(Paths.of_this_user())] == ["backend"]


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize("text", ["temperature = [", "top_q = 1"])
def test_a_preset_that_cannot_be_used_is_told(text: str) -> None:
    paths = Paths.of_this_user()
    paths.presets.mkdir(parents=True)
    (bad := paths.presets / "bad.toml").write_text(text)
    (fault,) = check_settings(paths)
    assert fault.source == str(bad)
    assert str(bad) in fault.what
    assert fault.remedy
