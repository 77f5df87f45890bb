"""The models specchat knows by a short name."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from backends.engines.backend_selection import LLAMACPP, MLX
from models import catalogue
from models.catalogue import DrafterKind, Size, SizeSource, entries, entry_of_file, find
from models.metadata.memory_bill import facts_of_entry
from models.names import quantization_of, simplified

FAMILIES = {
    "llama3", "qwen3", "qwen3.5", "gemma3", "gemma4", "mistral", "phi4", "smollm2", "lfm2.5",
    "nemotron",
}  # fmt: skip


def test_it_has_models_of_every_size_and_family_people_run() -> None:
    chat = [entry for entry in entries() if entry.chats]
    assert len(chat) >= 20
    assert min(entry.parameters for entry in chat) < 136e6
    assert max(entry.parameters for entry in chat) > 70e9
    assert {entry.family for entry in chat} >= {*FAMILIES, "gpt-oss"}
    assert any(entry.active < 0.2 * entry.parameters for entry in chat)


def test_no_two_models_share_a_name() -> None:
    names = [simplified(name) for entry in entries() for name in entry.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_an_entry_is_whole(entry: catalogue.Entry) -> None:
    kind = TypeAdapter(catalogue.Entry)
    assert kind.validate_json(kind.dump_json(entry), strict=True) == entry, "types are right"
    organisation, _, repository = entry.repository.partition("/")
    assert organisation
    assert repository.endswith("-GGUF")
    assert "{quantization}" in entry.file_pattern
    assert entry.licence
    assert 0 < entry.active <= entry.parameters
    assert entry.context >= 1024
    assert set(entry.sizes) <= set(entry.quantizations)
    assert entry.evidence in ("", "name", "files")
    assert not (entry.sizes and not entry.evidence), "a size comes from a page that was seen"
    for quantization in entry.quantizations:
        size = entry.size(quantization)
        assert size is not None
        assert 2 < 8 * size.bytes / entry.parameters < 13
    assert "/" in entry.mlx or not entry.mlx
    assert list(entry.good_at) == [one for one in catalogue.GOOD_AT if one in entry.good_at]
    assert bool(entry.good_at) == (entry.chats and entry.parameters > 300e6)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_its_drafters_are_in_the_catalogue_and_smaller(entry: catalogue.Entry) -> None:
    for drafter in entry.drafters:
        if drafter.kind.is_trained:
            assert not drafter.model
            is_own = drafter.kind is DrafterKind.NEXT_TOKEN_LAYERS
            assert drafter.repository or drafter.mlx or is_own
            assert drafter.runs_on(LLAMACPP) or drafter.runs_on(MLX)
            assert drafter.repository or not drafter.file
            continue
        found = find(drafter.model)
        assert found is not None
        assert found.parameters < entry.parameters
        same = drafter.kind is DrafterKind.SAME_VOCABULARY
        assert (found.family == entry.family) == same


@pytest.mark.parametrize("name", ["llama3-8b", "Llama 3 8B", "LLAMA_3.1-8b", "llama318b"])
def test_case_and_punctuation_do_not_matter(name: str) -> None:
    entry = find(name)
    assert entry is not None
    assert entry.name == "llama3.1-8b"


@pytest.mark.parametrize(
    ("target", "alias", "model"),
    [
        ("llama3-8b", "1b", "llama3.2-1b"),
        ("gemma3-12b", "1B", "gemma3-1b"),
        ("qwen3-8b", "0.6b", "qwen3-0.6b"),
        ("llama3-8b", "124m", "gpt2-124m"),
        ("qwen3-0.6b", "0.6b", None),
        ("llama3-8b", "0.6b", None),
        (None, "124m", "gpt2-124m"),
        (None, "1b", None),
    ],
)
def test_a_short_drafter_name_is_of_the_targets_family(
    target: str | None, alias: str, model: str | None
) -> None:
    found = catalogue.drafter(alias, find(target) if target else None)
    assert (found.model if found else None) == model


def test_gpt_2_drafts_across_vocabularies() -> None:
    found = catalogue.drafter("124m", find("llama3-8b"))
    assert found is not None
    assert found.kind is DrafterKind.CROSS_VOCABULARY


def test_trained_drafters_say_what_was_measured_with_them() -> None:
    target = find("qwen3.8-27b")
    assert target is not None
    mtp = catalogue.drafter("mtp", target)
    assert mtp is not None
    assert mtp.is_in_model
    dspark = catalogue.drafter("dspark", target)
    assert dspark is not None
    assert (dspark.runs_on(LLAMACPP), dspark.runs_on(MLX)) == (False, True)
    assert (mtp.runs_on(LLAMACPP), mtp.mlx) == (True, "mlx-community/Qwen3.8-27B-MTP-4bit")
    other = catalogue.drafter("eagle3", find("gpt-oss-20b"))
    assert other is not None
    assert not other.is_in_model
    assert mtp.kind.words == "next-token layers"
    assert "prose 0.8 on an M4" in mtp.published
    dflash = catalogue.drafter("dflash", target)
    assert dflash is not None
    assert dflash.file.endswith(".gguf")


def test_where_a_size_is_from_is_told() -> None:
    text = """
quantizations = ["Q8_0", "Q4_0", "Q6_K", "odd"]
drafters = {}
[family.f]
licence = "mit"
context = 5
[[model]]
name = "m"
family = "f"
parameters = 1e9
repository = "o/m-GGUF"
sizes = { Q8_0 = 1_062_500_001, Q4_0 = 0.6e9 }
"""
    (entry,) = catalogue.read(text)
    assert [entry.size(one) for one in entry.quantizations] == [
        Size(1_062_500_001, SizeSource.HUB),
        Size(600_000_000, SizeSource.PAGE),
        Size(825_000_000, SizeSource.ESTIMATE),
        None,
    ]
    assert entry.file("Q8_0") == "m-Q8_0.gguf"
    assert facts_of_entry(entry, "Q8_0") is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Llama-3.2-1B-Instruct-Q8_0.gguf", "llama3.2-1b"),
        ("Qwen_Qwen3-30B-A3B-Q4_K_M.gguf", "qwen3-30b-a3b"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m"),
        ("mine.gguf", None),
        ("LFM2.5-1.2B-Instruct-Q4_K_M.gguf", "lfm2.5-1.2b"),
        ("LFM2.5-1.2B-Instruct-DSpark-Q4_K_M.gguf", None),
        ("Qwen3.8-27B-DFlash2-Q4_K_M.gguf", None),
        ("mtp-Qwen3.8-27B-Q4_0.gguf", None),
        ("Qwen3.6-27B-MTP-UD-IQ3_XXS.gguf", "qwen3.6-27b"),
        ("Qwen3.8-27B-8bit", "qwen3.8-27b"),
        ("phi-4.gguf", "phi4-14b"),
        ("Phi-4-mini-instruct-Q4_K_M.gguf", None),
        ("Meta-Llama-3.1-8B-Instruct-abliterated-Q4_K_M.gguf", None),
        ("Qwen_Qwen3-4B-Thinking-2507-Q4_K_M.gguf", None),
        ("gpt2-xl.Q4_K_M.gguf", None),
    ],
)
def test_a_file_is_known_by_its_name(file: str, name: str | None) -> None:
    entry = entry_of_file(file)
    assert (entry.name if entry else None) == name


def test_a_file_of_an_entry_is_its_own() -> None:
    for entry in entries():
        for quantization in (*entry.quantizations, "IQ2_XXS", "UD-Q3_K_XL", "BF16"):
            file = entry.file(quantization)
            part = f"{file.removesuffix('.gguf')}-00002-of-00012.gguf"
            for name in (file, part, file.lower(), f"{quantization}/{part}"):
                assert entry_of_file(name) is entry, name
        if entry.mlx:
            assert entry_of_file(entry.mlx) is entry


@given(
    entry=st.sampled_from(entries()),
    more=st.text("abcxyzIQ0123456789-_. ", min_size=1, max_size=12)
    | st.sampled_from(["-Thinking-2507", "-abliterated", "-mini", "-xl", "-v2", "0", "-Base-Q8"]),
)
def test_what_is_made_from_a_model_is_not_the_model(entry: catalogue.Entry, more: str) -> None:
    """More of a name is another name, whatever quantization comes after it."""
    own = {
        simplified(other.file("Q8_0").removesuffix("Q8_0.gguf"))
        for other in entries()
        if "{quantization}" in other.file_pattern
    }
    whole = entry.file("Q8_0").removesuffix("Q8_0.gguf")[:-1] + more
    assume(simplified(more))
    assume(simplified(whole) not in own)
    assume(quantization_of(f"{whole}.gguf") is None)
    assert entry_of_file(f"{whole}-Q4_K_M.gguf") is None
    assert entry_of_file(f"{whole}.gguf") is None


def test_estimates_agree_with_the_sizes_pages_show() -> None:
    for entry in entries():
        if entry.parameters < 1e9:
            continue
        for quantization in entry.sizes:
            estimate, seen = replace(entry, sizes={}).size(quantization), entry.size(quantization)
            assert estimate is not None
            assert seen is not None
            assert abs(estimate.bytes / seen.bytes - 1) < 0.1, (entry.name, quantization)


def test_memory_facts_come_from_the_catalogue_too() -> None:
    entry = find("llama3-8b")
    assert entry is not None
    facts = facts_of_entry(entry, "Q4_K_M")
    assert facts is not None
    assert facts.attention.cache_bytes(8192) == 1 << 30


@pytest.mark.slow
def test_importing_a_session_reads_no_catalogue() -> None:
    code = (
        "import app.engine.session_opening, models.catalogue as c; "
        "print(c.entries.cache_info().currsize, 'huggingface_hub' in __import__('sys').modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "0 False\n"
