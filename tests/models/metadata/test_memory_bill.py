"""Bills from headers and the catalogue, against what the engine then takes."""

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Model, ModelError
from backends.base.images import IMAGE_TOKENS, image_of
from backends.files.attention import Attention, Layers, state_bytes
from backends.files.gguf_header import read_header
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import (
    CHUNK,
    Fit,
    MemoryBill,
    ModelFacts,
    bill,
    compute_bytes,
    facts_of,
    facts_of_target,
    fit,
    host_bytes,
)
from models.metadata.trained_drafters import head_facts
from tests.fixtures.drafter_files import EAGLE3, EAGLE3_KEYS, OWN, TARGET_KEYS, WIDTH, written
from tests.fixtures.little_memory import taking_less_than
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.projector import picture, write_projector


def facts(**extents: int) -> ModelFacts:
    attention = Attention((Layers(2, 1, 8, 8),))
    return ModelFacts(
        1000,
        extents.get("n_vocab", 10),
        extents.get("width", 4),
        extents.get("feed_forward", 8),
        4096,
        attention,
    )


def test_a_bill_adds_up() -> None:
    found = bill(facts(), 16)
    assert (found.weights, found.cache) == (1000, 16 * 2 * 16 * 2)
    assert found.total == found.weights + found.cache + found.compute


def test_a_bill_says_its_parts_in_words() -> None:
    words = MemoryBill(5_000_000_000, 1_000_000_000, 20_000_000).words
    assert words == "weights 5.0 GB, context 1.0 GB, working memory 20 MB"


@pytest.mark.parametrize(
    ("needed", "free", "expected"),
    [(90, 100, Fit.FITS), (91, 100, Fit.TIGHT), (100, 100, Fit.TIGHT), (101, 100, Fit.TOO_BIG)],
)
def test_what_fits(needed: int, free: int, expected: Fit) -> None:
    assert fit(needed, free) is expected


@pytest.mark.parametrize(
    ("size", "text"), [(4_920_000_000, "4.9 GB"), (99_000_000, "0.1 GB"), (12_400_000, "12 MB")]
)
def test_bytes_are_read_as_gigabytes(size: int, text: str) -> None:
    assert gigabytes(size) == text


def test_weights_and_cache_of_the_bundled_model_are_what_the_engine_says(
    demo: Model, demo_file: Path
) -> None:
    found = facts_of(demo_file)
    context = demo.open(512)
    assert found.attention.cache_bytes(512) == 512 * context.kv_bytes_per_token
    context.close()
    assert abs(found.weight_bytes / demo.info.weight_bytes - 1) < 0.01
    assert (found.n_vocab, found.context_limit) == (demo.info.n_vocab, demo.info.context_limit)


def engine_buffers(act: Callable[[], object]) -> dict[str, float]:
    """Bytes by purpose that llama.cpp logs meanwhile."""
    from llama_cpp import llama_cpp as api

    from backends.llamacpp import library, vision

    lines: list[str] = []

    @api.llama_log_callback
    def keep(_level: int, text: bytes | None, _user_data: object) -> None:
        lines.append((text or b"").decode(errors="replace"))

    setters = (api.llama_log_set, vision.mtmd_library().mtmd_helper_log_set)
    for setter in setters:
        setter(keep, ctypes.c_void_p(0))
    try:
        act()
    finally:
        for setter in setters:
            setter(library.keep_log, ctypes.c_void_p(0))
    found = re.findall(r"(compute|KV|RS|output) buffer size\s*=\s*([\d.]+) MiB", "".join(lines))
    return {name: float(size) * (1 << 20) for name, size in found}


@pytest.mark.parametrize("n_ctx", [512, 4096])
def test_the_engine_stays_within_the_bill(demo: Model, demo_file: Path, n_ctx: int) -> None:
    facts = facts_of(demo_file)
    found, taken = bill(facts, n_ctx), engine_buffers(lambda: demo.open(n_ctx).close())
    assert taken["KV"] == found.cache
    computed = compute_bytes(facts, n_ctx)
    assert found.compute == host_bytes(facts, n_ctx) + computed
    assert abs(taken["output"] - 4 * facts.output_rows * facts.n_vocab) <= 0.0051 * (1 << 20)
    assert 0.4 * computed < taken["compute"] <= computed


@pytest.mark.parametrize(("kind", "side"), [("mlp", 224), ("gemma3", 448), ("qwen2vl", 224)])
def test_a_projector_beside_a_model_is_in_its_bill_and_holds_what_the_engine_takes(
    llamacpp: ModuleType,
    demo_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    side: int,
) -> None:
    for name, value in {"SIDE": side, "_PATCH": 14, "_INNER": 512}.items():
        monkeypatch.setattr(f"tests.fixtures.tiny.projector.{name}", value)
    file = tmp_path / "Demo.gguf"
    file.symlink_to(demo_file)
    without = bill(facts_of_target(file), 512)
    projector = write_projector(tmp_path / "mmproj.gguf", kind, width=576)
    found = bill(facts_of_target(file), 512)
    assert bill(facts_of(file), 512) == without
    assert found.total - without.total == found.images
    assert "images" in found.words
    with closing(llamacpp.load(file, threads=1, projector=projector)) as model:
        vision = model.tokenizer.vision
        seen = model.tokenizer.image_tokens(image_of(picture(1, 300, 200), "x"))
        first = next(token for token in seen if token >= IMAGE_TOKENS)
        taken = engine_buffers(lambda: vision.rows(vision.chunk(first)))["compute"]
    assert 0 < taken <= found.images - projector.stat().st_size
    projector.write_bytes(b"GGUF")
    assert bill(facts_of_target(file), 512) == without


def test_a_model_with_a_running_state_has_no_cache(tiny_mamba: Path) -> None:
    assert facts_of(tiny_mamba).attention.cache_bytes(512) == 0


def test_running_states_are_those_of_the_engine(llamacpp: ModuleType, hybrid_file: Path) -> None:
    """It logs sizes in MiB with two decimals."""
    with closing(llamacpp.load(hybrid_file)) as model, closing(model.open(512)) as context:
        found, taken = (
            bill(facts_of(hybrid_file), 512),
            engine_buffers(lambda: model.open(512).close()),
        )
        assert found.state == context.state_bytes
        assert found.cache == 512 * context.kv_bytes_per_token
    for purpose, size in (("RS", found.state), ("KV", found.cache)):
        assert abs(taken[purpose] - size) <= 0.0051 * (1 << 20)
    facts = facts_of(hybrid_file)
    assert taken["compute"] <= compute_bytes(facts, 512)
    assert taken["output"] <= host_bytes(facts, 512)


@pytest.mark.parametrize(
    ("architecture", "layers", "heads", "megabytes"),
    [("qwen35", 65, 48, 157), ("qwen35moe", 41, 32, 66), ("qwen35", 32, 32, 53)],
)
def test_a_copy_of_a_running_state_is_as_large_as_published(
    tmp_path: Path, architecture: str, layers: int, heads: int, megabytes: int
) -> None:
    """Of Qwen 3.5 with 27B, 35B and 9B parameters; two of the files also predict further tokens."""
    path = header(
        tmp_path / "hybrid.gguf", architecture,
        block_count=layers, nextn_predict_layers=layers % 2, embedding_length=64,
        ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=16,
        ssm__inner_size=128 * heads, ssm__time_step_rank=heads,
    )  # fmt: skip
    assert round(state_bytes(read_header(path)) / 1e6) == megabytes
    assert facts_of(path).state_bytes == 4 * state_bytes(read_header(path))


def header(path: Path, architecture: str, **figures: int | list[int] | list[bool]) -> Path:
    """A file of a header and one tensor."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in figures.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_int32(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_graphs_of_a_hybrid_grow_with_the_pass(tmp_path: Path) -> None:
    hybrid = facts_of(header(tmp_path / "hybrid.gguf", "qwen35", block_count=4)).graph
    dense = facts_of(header(tmp_path / "dense.gguf", "llama", block_count=4)).graph
    assert [hybrid.operations(tokens) for tokens in (1, 256, 512)] == [40, 40 * 256, 40 * 512]
    assert [dense.operations(tokens) for tokens in (1, 512)] == [1024, 1024]


def test_layers_of_several_kinds_are_counted_by_kind(tmp_path: Path) -> None:
    path = header(
        tmp_path / "windows.gguf", "gemma4",
        block_count=3, embedding_length=64, attention__head_count=4,
        attention__head_count_kv=[2, 2, 1],
        attention__key_length=32, attention__value_length=32,
        attention__key_length_swa=16, attention__value_length_swa=16,
        attention__sliding_window=8, attention__sliding_window_pattern=[True, True, False],
    )  # fmt: skip
    found = facts_of(path).attention
    assert found.layers == (*[Layers(1, 2, 16, 16, 8)] * 2, Layers(1, 1, 32, 32))
    assert found.cache_bytes(100) == 100 * (2 * 2 * 32 * 2 + 64 * 2)


def test_layers_that_read_the_cache_of_others_have_none(tmp_path: Path) -> None:
    path = header(
        tmp_path / "shared.gguf", "gemma4",
        block_count=5, embedding_length=64, attention__head_count=4, attention__head_count_kv=2,
        attention__shared_kv_layers=3,
    )  # fmt: skip
    kept = [kind.numbers_per_token for kind in facts_of(path).attention.layers]
    assert kept == [64, 64, 0, 0, 0]


def test_only_every_so_many_layers_of_a_hybrid_keep_a_cache(tmp_path: Path) -> None:
    path = header(
        tmp_path / "hybrid.gguf", "qwen35",
        block_count=8, embedding_length=64, attention__head_count=4,
        attention__head_count_kv=2, full_attention_interval=4,
    )  # fmt: skip
    layers = facts_of(path).attention.layers
    assert [kind.numbers_per_token for kind in layers] == [0, 0, 0, 64] * 2
    assert [kind.has_state for kind in layers] == [True, True, True, False] * 2


@pytest.mark.parametrize(
    "figures",
    [
        {"block_count": -1},
        {"block_count": 1 << 30},
        {"block_count": 2, "embedding_length": -64, "attention__head_count": 4},
        {"block_count": 2, "attention__key_length": -8, "attention__head_count_kv": 1},
        {"block_count": 2, "attention__head_count_kv": [-3, 1], "attention__head_count": 1},
    ],
)
def test_absurd_figures_are_a_damaged_file(tmp_path: Path, figures: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="damaged"):
        facts_of(header(tmp_path / "odd.gguf", "llama", **figures))


def test_a_sentencepiece_vocabulary_without_byte_tokens_is_refused(
    llamacpp: ModuleType, tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    """llama.cpp ends the process at the first letter that has no token."""
    whole = tiny_llama().read_bytes()
    path = tmp_path / "letters.gguf"
    path.write_bytes(whole.replace(b"<0xC3>", b"[0xC3]"))
    with pytest.raises(ModelError, match=r"letters\.gguf: its SentencePiece vocabulary lacks"):
        llamacpp.load(path)
    path.write_bytes(whole.replace(b"<0xFF>", b"[0xFF]"))
    model = llamacpp.load(path)
    assert model.tokenizer.encode("é", special=False)
    model.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths that were never used: headers are kept until their file changes."""
    folder = tmp_path_factory.mktemp("damaged")
    return (folder / f"{number}.gguf" for number in itertools.count())


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12_000),
            st.sampled_from([1, 4, 8]),
            st.sampled_from([0, 1, 3, 255, 1 << 16, 1 << 24, 1 << 31, 1 << 62, (1 << 64) - 1]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3000),
)
def test_a_damaged_header_gives_facts_or_a_model_error(
    tiny_llama: Callable[..., Path],
    places: Iterator[Path],
    changes: list[tuple[int, int, int]],
    cut: int,
) -> None:
    data = bytearray(tiny_llama().read_bytes())
    for at, width, value in changes:
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    path = next(places)
    path.write_bytes(data[: len(data) - cut])
    with taking_less_than(4 << 20), suppress(ModelError):
        found = facts_of(path)
        assert found.weight_bytes <= len(data)
        assert found.attention.cache_bytes(512) >= 0
    path.unlink()


FLOAT, HALF = 4, 2


def test_a_models_own_layers_have_no_weights_of_their_own(tiny: Tiny) -> None:
    path = tiny("qwen35")
    facts, whole = head_facts(path, path), facts_of(path)
    assert facts.weight_bytes == 0
    assert facts.row_bytes == FLOAT * whole.width
    cache = facts.attention.cache_bytes(100)
    full = sum(kind.numbers_per_token > 0 for kind in whole.attention.layers)
    assert cache == whole.attention.cache_bytes(100) // full, "one layer, as large as the others"
    assert bill(facts, 100).cache == cache + 100 * facts.row_bytes


def test_a_sidecar_has_the_weights_of_its_file(tiny: Tiny) -> None:
    own = head_facts(tiny("qwen35"), tiny("qwen35"))
    beside = head_facts(tiny("qwen35-sidecar"), tiny("qwen35"))
    assert beside.weight_bytes == facts_of(tiny("qwen35-sidecar")).weight_bytes > 0
    assert (beside.attention, beside.row_bytes) == (own.attention, own.row_bytes)


def test_a_head_of_three_layers_keeps_three_rows_of_a_token(tmp_path: Path) -> None:
    head = written(tmp_path / "e.gguf", "eagle3", EAGLE3_KEYS, EAGLE3)
    model = written(tmp_path / "m.gguf", "llama", TARGET_KEYS, OWN[:4])
    facts = head_facts(head, model)
    assert facts.row_bytes == FLOAT * 3 * WIDTH
    assert facts.context_limit == 0, "its context is the model's"


def test_an_assistant_has_no_cache_and_keeps_the_rows_of_a_pass(tiny: Tiny) -> None:
    facts = head_facts(tiny("gemma4-assistant"), tiny("gemma4"))
    assert facts.attention.cache_bytes(1000) == 0
    assert facts.row_bytes == FLOAT * facts_of(tiny("gemma4")).width
    assert facts.kept_bytes(1000) == facts.kept_bytes(100_000) == CHUNK * facts.row_bytes
    assert facts.kept_bytes(10) == 10 * facts.row_bytes


def test_a_model_without_a_head_has_no_facts_of_one(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="brings nothing that drafts"):
        head_facts(tiny("llama"), tiny("llama"))
