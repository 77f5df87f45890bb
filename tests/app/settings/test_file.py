"""The settings file: wrong keys name the nearest, and a change leaves what a person wrote."""

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.actions import ACTIONS
from app.settings import catalogue, file
from app.settings.catalogue import KEYS
from app.settings.file import template
from backends.base import UsageError

WRITTEN = """\
# mine
theme = "nord"   # I like it

temperature = 0.5
[keys]
new = "f10"  # far away

[presets.brief]
# short
system = "Be brief."
"""


def uncommented(text: str) -> str:
    """A template with every key set."""
    return "\n".join(
        line[2:] if line.startswith("# ") and ("=" in line or line.startswith("# [")) else line
        for line in text.splitlines()
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder that is there."""
    path = tmp_path / "config" / "config.toml"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("temprature = 1", ["'temprature'", "Nearest: temperature"]),
        ("[preset.a]", ["'preset'", "Nearest: presets"]),
        ("[presets.a]\ntop_q = 1", ["'presets.a.top_q'", "Nearest: top_"]),
        ("[presets.a]\nseed = 1", ["'presets.a.seed'"]),
        ("[presets.a]\ntop_p = 0.0", ["presets.a.top_p", "0.0", "above 0"]),
        ("presets = 1", ["presets", "table"]),
        ("presets.a = 1", ["presets.a", "table"]),
        ('[keys]\nchast = "f10"', ["'keys.chast'", "Nearest: chats"]),
        ("[keys]\nchats = 1", ["keys.chats", "ctrl+n"]),
        ('[keys]\nchats = ""', ["keys.chats", "ctrl+n"]),
        ("keys = 1", ["keys", "table"]),
        ('enter_sends = "yes"', ["enter_sends", "true or false"]),
        ("theme = 3", ["theme", "text"]),
        ("ctx = true", ["ctx", "a whole number"]),
        ("ctx = 1.5", ["ctx", "1.5", "a whole number"]),
        ("temperature = nan", ["temperature", "nan", "at most 100"]),
        ("max_tokens = 0", ["max_tokens", "at least 1"]),
        ('panel = "show"', ["panel", "'show'", "it is one of auto, shown, hidden"]),
        ('system = "a\\u0000"', ["system", "NUL"]),
        ("seed = -1", ["seed", "at least 0"]),
        ("=", ["line 1"]),
    ],
)
def test_what_is_wrong_is_named(path: Path, text: str, told: list[str]) -> None:
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        file.read(path)
    assert str(path) in str(refused.value)
    assert all(part in str(refused.value) for part in told), refused.value


def test_a_file_that_cannot_be_read_is_not_written(path: Path) -> None:
    path.write_text("=")
    with pytest.raises(UsageError, match="line 1"):
        file.save(path, {"theme": "nord"})
    assert path.read_text() == "="


def test_a_wrong_entry_does_not_keep_others_from_being_saved(path: Path) -> None:
    path.write_text("future = 1\ntheme = 3\n")
    file.save(path, {"theme": "nord"})
    assert path.read_text() == 'future = 1\ntheme = "nord"\n'


def test_a_removed_key_has_its_default_again(path: Path) -> None:
    path.write_text(WRITTEN)
    before = file.read(path)
    file.save(path, {"seed": 7})
    file.save(path, {"seed": None, "top_k": None})
    assert file.read(path) == before


def test_a_mark_of_byte_order_is_no_setting(path: Path) -> None:
    path.write_text('theme = "nord"', encoding="utf-8-sig")
    assert file.read(path) == {"theme": "nord"}
    file.save(path, {"seed": 3})
    assert file.read(path) == {"theme": "nord", "seed": 3}


def test_a_change_leaves_comments_and_order(path: Path) -> None:
    path.write_text(WRITTEN)
    file.save(path, {"theme": "gruvbox", "temperature": 0.0, "panel": "hidden"})
    text = path.read_text()
    assert 'theme = "gruvbox"   # I like it\n' in text
    assert "temperature = 0.0\n" in text
    assert text.startswith("# mine\n")
    assert text.endswith(WRITTEN[WRITTEN.index("[keys]") :])
    found = file.read(path)
    assert found["panel"] == "hidden"
    assert found["keys"] == {"new": "f10"}
    assert found["presets"] == {"brief": {"system": "Be brief."}}


def test_a_missing_file_is_made_with_every_key_explained(tmp_path: Path) -> None:
    path, changes = tmp_path / "new" / "one", {"temperature": 0.2, "system": 'Say "yes".\nAnd\tno.'}
    file.save(path, changes)
    text = path.read_text()
    assert file.read(path) == changes
    assert "\ntemperature = 0.2\n" in text
    assert "# temperature = 0.7" not in text
    assert text.count("# top_k = 40") == 1


def test_the_template_sets_nothing_and_every_line_of_it_counts(path: Path) -> None:
    assert tomllib.loads(template()) == {}
    path.write_text(uncommented(template()))
    found = file.read(path)
    assert set(found) == {*(key.name for key in KEYS), "keys", "presets"}
    assert all(found[key.name] == key.default for key in KEYS)


def test_a_line_like_the_template_inside_a_text_is_left_alone(path: Path) -> None:
    path.write_text('system = """\n# top_k = 40\n"""\n')
    file.save(path, {"top_k": 7})
    assert file.read(path) == {"system": "# top_k = 40\n", "top_k": 7}


TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"))
VALUES = {
    "system": TEXTS,
    "model": TEXTS,
    "top_k": st.integers(0, 1 << 31),
    "top_p": st.floats(0.0, 1.0, exclude_min=True),
    "offline": st.booleans(),
}
BEGINNINGS = st.sampled_from(["", WRITTEN, template(), "[keys]\n", "top_k = 1 # one"])


@pytest.mark.slow
@settings(max_examples=60)
@given(BEGINNINGS, st.fixed_dictionaries({}, optional=VALUES))
def test_what_is_saved_is_read_and_the_rest_stays(
    tmp_path_factory: pytest.TempPathFactory, beginning: str, changes: dict[str, catalogue.Value]
) -> None:
    path = tmp_path_factory.mktemp("saved") / "config.toml"
    path.write_text(beginning, encoding="utf-8")
    before = file.read(path)
    file.save(path, changes)
    assert file.read(path) == {**before, **changes}


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("# kept elsewhere\n")
    path.symlink_to(real)
    file.save(path, {"theme": "nord"})
    assert path.is_symlink()
    assert "nord" in real.read_text()


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        file.save(tmp_path / "file" / "config.toml", {"theme": "nord"})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("top_k", "7", 7), ("top_p", "1", 1.0), ("animations", "OFF", False), ("theme", "x", "x")],
)
def test_a_typed_value(name: str, text: str, value: object) -> None:
    assert catalogue.parsed(catalogue.BY_NAME[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top_k", "7.5"),
        ("top_p", "much"),
        ("animations", "maybe"),
        ("ahead", "maybe"),
        ("ahead_waste", "3601"),
        ("ahead_waste", "nan"),
    ],
)
def test_a_typed_value_that_cannot_be_used(name: str, text: str) -> None:
    key = catalogue.BY_NAME[name]
    with pytest.raises(UsageError, match=f"^{key.title.lower() or name} cannot be "):
        catalogue.parsed(key, text)


def test_the_docs_name_every_key_and_every_action_that_may_have_another_key() -> None:
    doc = (Path(__file__).parents[3] / "docs" / "use" / "settings.md").read_text(encoding="utf-8")
    assert [key.name for key in KEYS if f"`{key.name}`" not in doc] == []
    assert [one.name for one in ACTIONS if one.keys and f"| `{one.name}` |" not in doc] == []
