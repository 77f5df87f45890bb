"""What a user may call a model."""

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import ModelError, UsageError
from backends.engines.backend_selection import Form
from models import catalogue
from models.reference import HubReference, Reference, at_hand, entry_of, on_hub, resolve
from models.stores import available_models
from models.stores.available_models import best_installed, known_names

WHOLE = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
"""The smallest file that is no damaged one: a header of nothing."""


def file_of(name: str, folder: Path) -> Reference:
    return at_hand(resolve(name, folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for name, size in {"Llama-3.2-1B": 100, "tiny": 10, "qwen2.5-7b": 1000}.items():
        (folder / f"{name}.gguf").write_bytes(WHOLE.ljust(size, b"\0"))
    (folder / "notes.txt").touch()
    return folder


def test_known_names_are_the_bundled_model_and_the_files_of_the_folder(folder: Path) -> None:
    assert list(known_names(folder)) == ["demo", "Llama-3.2-1B", "qwen2.5-7b", "tiny"]


@pytest.mark.parametrize("name", ["Llama-3.2-1B", "llama-3.2-1b", "llama3.2 1b", "LLAMA_32_1B"])
def test_case_and_punctuation_do_not_matter(folder: Path, name: str) -> None:
    found = file_of(name, folder)
    assert (found.name, found.path) == ("Llama-3.2-1B", folder / "Llama-3.2-1B.gguf")


@pytest.mark.parametrize("name", ["demo", "Demo", "DEMO"])
def test_the_bundled_model_needs_no_folder(tmp_path: Path, demo_file: Path, name: str) -> None:
    assert file_of(name, tmp_path / "nowhere").path == demo_file


def test_a_path_is_taken_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert file_of("tiny.gguf", folder).path == Path("tiny.gguf")
    with pytest.raises(UsageError, match=r"no file gone\.gguf. Nearest: tiny\.gguf"):
        file_of("gone.gguf", folder)
    assert file_of("notes.txt", folder).path == Path("notes.txt")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert file_of("~/tiny.gguf", folder).path == folder / "tiny.gguf"


@pytest.mark.parametrize(
    ("name", "near"), [("lama-3.2-1bb", "Llama-3.2-1B"), ("tny", "tiny"), ("dmo", "demo")]
)
def test_an_unknown_name_brings_the_nearest_first(folder: Path, name: str, near: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(name, folder)
    assert f"Nearest: {near}" in refused.value.what


@pytest.mark.parametrize("name", ["", "-", "///", "."])
def test_a_name_without_letters_is_unknown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        resolve(name, folder)


@settings(max_examples=200)
@given(
    st.one_of(
        st.text(max_size=30),
        st.from_regex(r"[~./a-z:0-9_-]{0,20}", fullmatch=True),
        st.sampled_from(["~nobody-here", "a" * 5000, "a\0b", "~", "..", "c:\\x", "\ud800"]),
    )
)
def test_any_text_is_a_model_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "none"
    with contextlib.suppress(UsageError, ModelError):
        assert resolve(name, folder).name


def test_a_folder_of_several_models_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="is no single model"):
        resolve(str(folder), folder)


@pytest.mark.parametrize("there", ["config.json", "model.safetensors", "model.safetensors.part"])
def test_a_folder_with_part_of_an_mlx_model_is_meant_as_one(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("{}", encoding="utf-8")
    assert resolve(str(tmp_path), tmp_path / "models") == Reference(tmp_path.name, tmp_path)


def test_the_bundled_model_may_not_be_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(available_models, "demo_path", lambda: None)
    assert "demo" not in known_names(folder)
    with pytest.raises(ModelError, match="not installed") as refused:
        resolve("demo", folder)
    assert "pip install" in refused.value.remedy


@pytest.mark.parametrize(
    ("room", "best"), [(5000, "qwen2.5-7b"), (1000, "Llama-3.2-1B"), (35, "tiny"), (5, None)]
)
def test_the_best_installed_is_the_largest_that_fits(
    folder: Path, room: int, best: str | None
) -> None:
    assert best_installed(folder, room) == best


def test_nothing_is_installed_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert best_installed(tmp_path / "nowhere", 1 << 40) is None


def test_a_dangling_link_in_the_folder_is_passed_over(folder: Path) -> None:
    (folder / "gone.gguf").symlink_to(folder / "nothing")
    assert best_installed(folder, 5000) == "qwen2.5-7b"


def hub_of(name: str, folder: Path) -> HubReference:
    found = resolve(name, folder)
    assert isinstance(found, HubReference)
    return found


@pytest.mark.parametrize("name", ["llama3-8b", "Llama 3 8B", "llama_3_8b"])
def test_an_alias_means_a_file_on_the_hub(folder: Path, name: str) -> None:
    found = hub_of(name, folder)
    assert found.name == "llama3.1-8b"
    assert found.repository == "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"
    assert (found.quantization, found.file) == ("Q4_K_M", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    assert entry_of(found) == found.entry == catalogue.find("llama3-8b")


@pytest.mark.parametrize(
    ("name", "quantization", "file"),
    [
        ("llama3-8b:iq4_xs", "IQ4_XS", "Meta-Llama-3.1-8B-Instruct-IQ4_XS.gguf"),
        ("llama3-8b:q8_0", "Q8_0", "Meta-Llama-3.1-8B-Instruct-Q8_0.gguf"),
        ("org/name", None, None),
        ("org/name:q4_0", "Q4_0", None),
        ("org/name:sub/file.gguf", None, "sub/file.gguf"),
        ("bartowski/phi-4-GGUF", "Q4_K_M", "phi-4-Q4_K_M.gguf"),
        ("bartowski/phi-4-GGUF:Q6_K", "Q6_K", "phi-4-Q6_K.gguf"),
    ],
)
def test_a_repository_may_be_followed_by_what_is_wanted_of_it(
    folder: Path, name: str, quantization: str | None, file: str | None
) -> None:
    found = hub_of(name, folder)
    assert (found.quantization, found.file) == (quantization, file)


def test_what_is_no_quantization_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"Nearest: llama3"):
        resolve("llama3-8b:best", folder)


def test_what_is_not_installed_comes_with_the_command_that_gets_it(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"llama3\.1-8b is not installed") as refused:
        at_hand(resolve("llama3-8b", folder))
    assert refused.value.why == "get it with: specchat models pull llama3.1-8b"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("phi4", "phi-4-Q4_K_M.gguf"),
        ("phi4", "bartowski/phi-4-GGUF/phi-4-Q4_K_M.gguf"),
        ("phi4", "phi-4-Q8_0.gguf"),
        ("phi4:q8_0", "phi-4-Q8_0.gguf"),
        ("bartowski/phi-4-GGUF", "phi-4-Q4_K_M.gguf"),
        ("org/name", "org/name/one.gguf"),
        ("org/name:q4_0", "org--name/one-q4_0.gguf"),
        ("org/name:one.gguf", "one.gguf"),
    ],
)
def test_a_hub_model_that_was_fetched_is_a_file(folder: Path, name: str, place: str) -> None:
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(WHOLE)
    assert file_of(name, folder).path == path


def test_another_quantization_is_not_the_one_asked_for(folder: Path) -> None:
    (folder / "phi-4-Q4_K_M.gguf").write_bytes(WHOLE)
    assert hub_of("phi4:q8_0", folder).file == "phi-4-Q8_0.gguf"
    (folder / "org" / "name").mkdir(parents=True)
    (folder / "org" / "name" / "one-q8_0.gguf").write_bytes(WHOLE)
    assert hub_of("org/name:q4_0", folder).file is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("phi4-14b", "Phi-4-mini-instruct-Q4_K_M.gguf"),
        ("llama3.1-8b", "Meta-Llama-3.1-8B-Instruct-abliterated-Q4_K_M.gguf"),
        ("qwen3-4b", "Qwen_Qwen3-4B-Thinking-2507-Q4_K_M.gguf"),
        ("gpt2-124m", "gpt2-xl.Q8_0.gguf"),
        ("maker/Model", "maker/Model-Large/Model-Large-Q4_K_M.gguf"),
        ("maker/Model:q4_0", "maker/Model/Model-IQ4_0.gguf"),
        ("maker/Model:q4_k", "maker/Model/Model-Q4_K_S.gguf"),
    ],
)
def test_a_model_made_from_another_is_not_the_one_asked_for(
    folder: Path, name: str, file: str
) -> None:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(WHOLE)
    assert isinstance(resolve(name, folder), HubReference)


def test_a_folder_with_one_model_means_it(folder: Path, tmp_path: Path) -> None:
    one, split, mlx = (tmp_path / name for name in ("one", "split", "mlx"))
    for made in (one, split, mlx):
        made.mkdir()
    (one / "only.gguf").write_bytes(WHOLE)
    for part in (1, 2):
        (split / f"big-0000{part}-of-00002.gguf").write_bytes(WHOLE)
    (mlx / "config.json").write_text("{}")
    (mlx / "model.safetensors").touch()
    assert file_of(str(one), folder) == Reference("one", one / "only.gguf")
    assert file_of(str(split), folder).path == split / "big-00001-of-00002.gguf"
    assert file_of(str(mlx), folder) == Reference("mlx", mlx)


def test_folders_and_split_models_have_one_name_each(folder: Path) -> None:
    (folder / "mlx").mkdir()
    (folder / "mlx" / "config.json").write_text('{"model_type": "llama"}')
    (folder / "mlx" / "model.safetensors").write_bytes(b"x")
    (folder / "empty").mkdir()
    for part in (1, 2):
        (folder / f"big-0000{part}-of-00002.gguf").write_bytes(WHOLE.ljust(700, b"\0"))
    names = known_names(folder)
    assert set(names) == {"demo", "Llama-3.2-1B", "big", "mlx", "qwen2.5-7b", "tiny"}
    assert names["mlx"] == folder / "mlx"
    assert best_installed(folder, 5000) == "big"


def test_the_nearest_name_may_be_of_the_catalogue_or_a_drafter(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"Nearest: qwen3-30b-a3b \(.* GB, to download\)"):
        resolve("qwen3-30b-a3", folder)
    with pytest.raises(UsageError, match=r"no drafter .* Nearest: lookup"):
        resolve("lokup", folder, ["lookup"])


def test_the_mlx_form_is_meant_where_it_is_preferred(folder: Path) -> None:
    found = resolve("llama3-8b", folder, forms=(Form.MLX, Form.GGUF))
    assert isinstance(found, HubReference)
    assert found.repository == "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit"
    assert (found.form, found.quantization, found.file) == (Form.MLX, None, None)
    assert entry_of(found) == catalogue.find("llama3-8b")
    assert on_hub("llama3-8b", folder, (Form.MLX,)) == found


@pytest.mark.parametrize("name", ["llama3-8b:q8_0", "gpt2-124m"])
def test_a_quantization_and_a_model_without_mlx_form_mean_a_file(folder: Path, name: str) -> None:
    found = resolve(name, folder, forms=(Form.MLX,))
    assert isinstance(found, HubReference)
    assert found.form is Form.GGUF


def test_a_repository_of_mlx_is_known_by_its_name(folder: Path) -> None:
    known = hub_of("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", folder)
    assert (known.form, known.entry) == (Form.MLX, catalogue.find("llama3-8b"))
    assert known.quantization is None
    assert hub_of("mlx-community/anything", folder).form is Form.MLX


def test_the_form_that_is_here_comes_before_the_one_that_is_preferred(folder: Path) -> None:
    file = folder / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    file.write_bytes(b"GGUF")
    found = at_hand(resolve("llama3-8b", folder, forms=(Form.MLX, Form.GGUF)))
    assert found.path == file
    assert isinstance(resolve("llama3-8b", folder, forms=(Form.MLX,)), HubReference)


def test_a_folder_is_the_best_installed_only_where_mlx_is_preferred(folder: Path) -> None:
    large = folder / "large-mlx"
    large.mkdir()
    (large / "config.json").write_text('{"model_type": "llama"}')
    header = b'{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (large / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert best_installed(folder, 1 << 40, (Form.MLX,)) == "large-mlx"
    assert best_installed(folder, 1 << 40) != "large-mlx"
