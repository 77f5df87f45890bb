"""Presets and prompts as files: what is read, what is refused, and what a prompt sends."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.actions import BY_SLASH
from app.settings import presets
from app.settings.catalogue import Value
from app.settings.presets import Presets, described, expanded, prompts, shadowed
from backends.base import UsageError

SHIPPED = ["editor", "reviewer", "translator"]
VALUES = st.fixed_dictionaries(
    {"system": st.text(st.characters(codec="utf-8", exclude_characters="\0"))},
    optional={
        "temperature": st.floats(0.001, 100.0),
        "max_tokens": st.integers(1, 1 << 40),
        "lossy": st.sampled_from(["off", "typical"]),
    },
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "presets").mkdir()
    return tmp_path / "presets"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    return tmp_path / "prompts"


def test_what_is_shipped_can_be_used(folder: Path, own: Path) -> None:
    shipped = Presets(folder, {})
    assert shipped.names() == SHIPPED
    for name in SHIPPED:
        assert shipped.get(name)["system"]
        assert len(shipped.about(name).splitlines()) == 2
    assert sorted(prompts(own)) == ["commit", "explain", "proofread"]
    for name, path in prompts(own).items():
        assert described(path)[0].isupper()
        assert expanded(f"/{name} here it is", own).endswith("\n\nhere it is")


def test_an_own_file_comes_first_then_the_table_of_the_settings(folder: Path) -> None:
    (folder / "exact.toml").write_text('system = "of the file"')
    (folder / "reviewer.toml").write_text("top_k = 3")
    found = Presets(folder, {"exact": {"system": "of the table"}, "editor": {"top_k": 5}})
    assert found.names() == ["editor", "exact", "reviewer", "translator"]
    assert found.get("exact") == {"system": "of the file"}
    assert found.get("editor") == {"top_k": 5}
    assert found.get("reviewer") == {"top_k": 3}
    assert found.about("exact") == "of the file"


@settings(max_examples=30)
@given(VALUES)
@example({"system": '\r\none\r\n\\two\n"""\n'})
@example({"system": "\n"})
def test_what_is_saved_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Value]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "presets"
    found = Presets(folder, {})
    presets.put(found.path("mine"), found.text("mine", values))
    assert found.get("mine") == values
    presets.put(found.path("mine"), None)
    assert found.names() == SHIPPED


def test_saving_keeps_the_model_and_lines_of_their_own(folder: Path) -> None:
    found = Presets(folder, {"mine": {"model": "demo", "top_k": 3}})
    text = found.text("mine", {"system": "One.\nTwo."})
    assert tomllib.loads(text) == {"system": "One.\nTwo.", "model": "demo"}
    assert "One.\nTwo." in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"temperature = [", "cannot read "),
        (b"top_q = 1", "unknown key 'top_q'. Nearest: top_"),
        (b"seed = 1", "unknown key"),
        (b"temperature = -1", "temperature in "),
        (b"[system]\nx = 1", "it must be text"),
        (b"\xff\xfe\0", "UTF-16"),
        (b"# " + b"x" * (1 << 18), "larger than"),
        (b"a = " + b"[" * 3000, "nested too deep"),
    ],
)
def test_a_preset_that_cannot_be_used_says_why(folder: Path, content: bytes, told: str) -> None:
    (folder / "bad.toml").write_bytes(content)
    found = Presets(folder, {})
    with pytest.raises(UsageError) as caught:
        found.get("bad")
    assert told in caught.value.summary
    assert str(folder / "bad.toml") in caught.value.summary
    assert caught.value.remedy or content != b"temperature = ["
    assert found.about("bad").startswith("✕ ")
    assert found.names() == ["bad", *SHIPPED]


def test_a_folder_in_place_of_a_file_is_no_preset(folder: Path) -> None:
    (folder / "dir.toml").mkdir()
    with pytest.raises(UsageError, match="regular file"):
        Presets(folder, {}).get("dir")
    with pytest.raises(UsageError, match="cannot write"):
        presets.put(folder / "dir.toml", "")


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a\\b", "../x", "/etc/x", ".hidden", "off", "a\nb", "a:b", "x" * 60],
)
def test_names_that_no_file_should_have(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no preset can be named"):
        Presets(folder, {}).path(name)


@pytest.mark.parametrize(
    ("prompt", "text", "sent"),
    [
        ("Say $1 to $2.", "/p hi all of you", "Say hi to all of you."),
        ("Say $1 to $2.", '/p "oh no" "you all"', "Say oh no to you all."),
        ("Say $1 to $2.", "/p 'oh no' it's you", "Say oh no to it's you."),
        ("Say $1 to $2.", "/p 'tis 'a b'c", "Say 'tis to 'a b'c."),
        ("$$5 for $1, $$ARGUMENTS", "/p it", "$5 for it, $ARGUMENTS"),
        ("$$5", "/p a b", "$5\n\na b"),
        ("Say $1 to $2.", "/p hi", "Say hi to ."),
        ("$2 before $1", "/p a [Pasted text #1 +3 lines]", "[Pasted text #1 +3 lines] before a"),
        ("All: $ARGUMENTS!", '/p a "b c"', 'All: a "b c"!'),
        ("All: $ARGUMENTS!", "/p a\n b\nc", "All: a\n b\nc!"),
        ("$1", "/p $ARGUMENTS $1", "$ARGUMENTS $1"),
        ("No place.", "/p it's @here", "No place.\n\nit's @here"),
        ("No place.", "/p", "No place."),
        ("Costs $10 or $X", "/p", "Costs $10 or $X"),
        ("---\ndescription: x\n---\n\nBody $1", "/p a", "Body a"),
        ("Body", "/P", "/P"),
        ("Body", "/pp", "/pp"),
        ("Body", "/ p", "/ p"),
        ("Body", "/", "/"),
        ("Body", "p", "p"),
    ],
)
def test_what_a_prompt_sends(own: Path, prompt: str, text: str, sent: str) -> None:
    (own / "p.md").write_text(prompt)
    assert expanded(text, own) == sent


@given(
    st.lists(st.sampled_from(["$1", "$2", "$3", "$ARGUMENTS", "and"]), max_size=5),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60),
)
def test_no_argument_is_lost(
    tmp_path_factory: pytest.TempPathFactory, places: list[str], arguments: str
) -> None:
    own = tmp_path_factory.getbasetemp() / "prompts"
    own.mkdir(exist_ok=True)
    (own / "p.md").write_text("Do " + " ".join(places), encoding="utf-8")
    sent = expanded(f"/p {arguments}", own)
    numbers = {int(place[1]) for place in places if place[1:].isdecimal()}
    if numbers == set(range(1, len(numbers) + 1)) or "$ARGUMENTS" in places:
        for word in arguments.split():
            assert word.strip("\"'") in sent


def test_built_in_commands_come_first_and_that_is_told(own: Path) -> None:
    for name in ("new", "Undo", "my prompt", "-x", "good", ".hidden"):
        (own / f"{name}.md").write_text("# Mine\nmore")
    assert "good" in prompts(own)
    assert not prompts(own).keys() & {*BY_SLASH, "Undo", "my prompt", "-x", ".hidden"}
    told = "\n".join(shadowed(own))
    assert "/new is a command of specchat" in told
    assert "/Undo is a command of specchat" in told
    assert "/my prompt cannot be a command" in told
    assert len(told.splitlines()) == 4
    assert described(own / "good.md") == "Mine"


def test_a_prompt_that_cannot_be_read_says_why(own: Path) -> None:
    (own / "dir.md").mkdir()
    (own / "empty.md").write_text("---\ndescription: x\n---\n")
    (own / "binary.md").write_bytes(b"\0")
    for name, told in (("dir", "regular file"), ("empty", "is empty"), ("binary", "NUL")):
        with pytest.raises(UsageError, match=told):
            expanded(f"/{name}", own)
    assert described(own / "dir.md").startswith("✕ ")
