"""Models of llama.cpp: what is told of them, their memory, types of cache, and experts."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from app.learned.store import loaded_key
from app.loading.checked_loader import proof_key
from backends import llamacpp
from backends.base import CacheType, Logits, Model, UsageError
from backends.engines.backend_selection import LLAMACPP
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.loading import leave_out_matrices, only_map
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import facts_of
from tests.fixtures.tiny.kinds import Tiny


def test_info_of_the_bundled_model(demo: Model, demo_file: Path):
    info = demo.info
    assert info.architecture == "llama"
    assert info.quantization == "Q4_1"
    assert info.parameters == 134_515_008
    assert info.n_layers == 30
    assert info.context_limit == 8192
    # Its embedding doubles as the output layer, so that a token reads every weight once.
    assert info.bytes_read_per_token == pytest.approx(info.weight_bytes, rel=0.001)
    assert info.weight_bytes < demo_file.stat().st_size


def test_an_input_embedding_of_its_own_is_not_read_per_token(tiny_llama: Callable[..., Path]):
    model = llamacpp.load(tiny_llama())
    embedding_bytes = model.info.n_vocab * 32 * 4
    assert model.info.weight_bytes - model.info.bytes_read_per_token == embedding_bytes
    model.close()


@pytest.fixture(scope="module")
def known_bytes(demo: Model) -> set[int]:
    """Bytes that have a token: this model's vocabulary lacks some control characters."""
    pieces = map(demo.tokenizer.piece, range(demo.info.n_vocab))
    return {piece[0] for piece in pieces if len(piece) == 1}


@given(text=st.text())
def test_any_text_survives_the_tokenizer(demo: Model, known_bytes: set[int], text: str):
    assume(known_bytes.issuperset(text.encode()))
    tokenizer = demo.tokenizer
    tokens = tokenizer.encode(text, special=False)
    assert b"".join(map(tokenizer.piece, tokens)).decode() == text


def test_control_texts_are_tokens_only_where_that_is_meant(demo: Model):
    tokenizer = demo.tokenizer
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    spelled = tokenizer.encode("<|im_end|>", special=False)
    assert not tokenizer.end_tokens.intersection(spelled)
    assert "<|im_end|>" in tokenizer.special_texts
    assert tokenizer.piece(2) == b""
    assert (tokenizer.bos, tokenizer.bos_text) == (None, "<|im_start|>"), "none before prompts"


def test_weights_are_not_rearranged_for_kernels_that_round_otherwise(
    monkeypatch: pytest.MonkeyPatch,
):
    library.repacking_is_exact.cache_clear()
    monkeypatch.setattr(library, "system_info", lambda: "CPU : AVX2 = 1 | AMX_INT8 = 1 | ")
    assert not library.repacking_is_exact()
    library.repacking_is_exact.cache_clear()
    monkeypatch.setattr(library, "system_info", lambda: "CPU : AVX2 = 1 | ")
    assert library.repacking_is_exact()
    library.repacking_is_exact.cache_clear()


TOKENS = list(range(40, 60))


def logits(model: Model) -> Logits:
    with closing(model.open(64)) as context:
        return context.forward(TOKENS, 4).copy()


@pytest.fixture
def file(tiny_llama: Callable[..., Path]) -> Path:
    return tiny_llama(layers=3, experts=(4, 2))


def test_fewer_experts_are_those_of_a_file_that_says_so(
    file: Path, tiny_llama: Callable[..., Path]
) -> None:
    with (
        closing(llamacpp.load(file, threads=1)) as whole,
        closing(llamacpp.load(file, threads=1, experts=1)) as fewer,
        closing(llamacpp.load(tiny_llama(layers=3, experts=(4, 1)), threads=1)) as reference,
    ):
        np.testing.assert_array_equal(logits(fewer), logits(reference))
        assert not np.array_equal(logits(fewer), logits(whole))
        assert [one.info.active_experts for one in (whole, fewer, reference)] == [2, 1, 1]
        assert fewer.info.bytes_read_per_token == reference.info.bytes_read_per_token
        assert fewer.info.bytes_read_per_token < whole.info.bytes_read_per_token


def test_what_is_learned_of_it_is_not_taken_for_the_file_s(file: Path) -> None:
    with (
        closing(llamacpp.load(file, threads=1)) as whole,
        closing(llamacpp.load(file, threads=1, experts=1)) as fewer,
    ):
        names = {fingerprint(one.info.path, one.info.variant) for one in (whole, fewer)}
    assert len(names) == 2


def test_a_model_without_experts_says_so(tiny_llama: Callable[..., Path]) -> None:
    with closing(llamacpp.load(tiny_llama(), threads=1)) as model:
        assert model.info.active_experts == 0


_PEAK = """
import sys
from pathlib import Path
from backends.hardware.host import peak_memory_bytes
from backends import llamacpp
from decoding.generation import Limits, generate
from decoding.sampling.distribution import SamplingSettings

model = llamacpp.load(Path(sys.argv[1]), threads=1)
context = model.open(int(sys.argv[2]))
prompt = [1000 + index % 5000 for index in range(int(sys.argv[3]))]
for _ in generate(context, prompt, SamplingSettings(temperature=0.0), Limits(8, frozenset())):
    pass
print(peak_memory_bytes(), context.kv_bytes_per_token)
"""


def _peak(demo_file: Path, n_ctx: int, n_prompt: int) -> tuple[int, int]:
    command = [sys.executable, "-c", _PEAK, str(demo_file), str(n_ctx), str(n_prompt)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    peak, kv_bytes = map(int, done.stdout.split())
    return peak, kv_bytes


@pytest.mark.slow
def test_fifty_rounds_of_loading_and_unloading_do_not_grow(demo_file: Path):
    process = psutil.Process()
    after: list[int] = []
    for _ in range(50):
        model = llamacpp.load(demo_file)
        context = model.open(256)
        context.forward([1, 2, 3], 1)
        model.close()
        after.append(process.memory_info().rss)
    # The least of each: what is freed late, as by the allocator, comes and goes between rounds.
    assert min(after[-5:]) - min(after[4:9]) < 8_000_000


@pytest.mark.slow
@pytest.mark.processor("a card has memory of its own, and a driver takes more here")
def test_memory_grows_with_the_cache_and_with_no_prompt(demo_file: Path):
    small, kv_bytes = _peak(demo_file, 1024, 100)
    large, _ = _peak(demo_file, 5120, 900)
    # 4,096 more tokens of context, of which 800 are read; a row of logits for each of those alone
    # would be 157 MB.
    assert large - small < 1.2 * 4096 * kv_bytes + 20_000_000
    assert large - demo_file.stat().st_size < 600_000_000


QUANTIZED = (CacheType.Q8_0, CacheType.Q4_0)
PROMPT = [1, 75, 300, 299, 310, 75, 300, 299, 310, 75]


def loaded(path: Path, cache_type: CacheType | None) -> Model:
    return llamacpp.load(path, threads=1, cache_type=cache_type)


def logits_of(path: Path, cache_type: CacheType | None) -> np.ndarray:
    model = loaded(path, cache_type)
    rows = model.open(256).forward(PROMPT, 4).copy()
    model.close()
    return rows


def test_half_floats_are_the_engines_own(tiny: Tiny) -> None:
    path = tiny("llama")
    assert np.array_equal(logits_of(path, None), logits_of(path, CacheType.F16))


@pytest.mark.parametrize("cache_type", QUANTIZED)
def test_a_quantized_cache_changes_logits_a_little(tiny: Tiny, cache_type: CacheType) -> None:
    usual, found = (logits_of(tiny("llama"), one) for one in (None, cache_type))
    difference = np.abs(found - usual).mean()
    assert 0.0 < difference < 0.2 * usual.std()


@pytest.mark.parametrize("cache_type", CacheType)
def test_a_cache_takes_the_bytes_of_its_type(tiny: Tiny, cache_type: CacheType) -> None:
    model = loaded(tiny("llama"), cache_type)
    context = model.open(256)
    context.forward(PROMPT, 1)
    numbers = 6 * 2 * 32  # layers, key and value, numbers of a head
    assert context.kv_bytes_per_token == round(numbers * cache_type.number_bytes)
    billed = facts_of(tiny("llama")).with_cache(model.info.cache_type).attention.cache_bytes(256)
    assert billed == 256 * context.kv_bytes_per_token
    kept = context.save().size
    context.forward(PROMPT, 1)
    assert context.save().size - kept == pytest.approx(
        len(PROMPT) * context.kv_bytes_per_token, rel=0.2
    )
    model.close()


def test_heads_that_do_not_divide_into_blocks_are_refused(tiny_llama: Callable[..., Path]) -> None:
    model = loaded(tiny_llama(), CacheType.Q8_0)
    with pytest.raises(UsageError) as refusal:
        model.open(256)
    model.close()
    assert "cannot run with --kv q8_0" in str(refusal.value)
    assert "does not divide" in refusal.value.why
    assert refusal.value.remedy == "Use --kv f16."


def test_a_child_process_runs_the_type_that_the_app_will(tiny_llama: Callable[..., Path]) -> None:
    path = tiny_llama()
    process = ProofProcess()
    with pytest.raises(UsageError, match="--kv q8_0"):
        process.prove(CrashCheck(path, LLAMACPP, 1, cache_type=CacheType.Q8_0), path.stat().st_size)
    process.close()


def test_what_was_measured_or_proven_with_one_type_is_not_used_for_another(tiny: Tiny) -> None:
    path, keys = tiny("llama"), set[str]()
    for cache_type in (None, *CacheType):
        model = loaded(path, cache_type)
        keys.add(loaded_key(model.info))
        model.close()
    assert len(keys) == len(CacheType)  # none asked for is half floats
    proven = [CrashCheck(path, LLAMACPP, 1, cache_type=one) for one in CacheType]
    assert len(set(map(proof_key, proven))) == len(CacheType)


@pytest.mark.parametrize(("kind", "sequences"), [("llama", 63), ("lfm2", 1), ("qwen35", 1)])
def test_sequences_are_opened_only_where_trees_may_be_drafted(
    tiny: Tiny, kind: str, sequences: int
) -> None:
    model = loaded(tiny(kind), None)
    context = model.open(256)
    assert isinstance(context, LlamaContext)
    assert context.pointer is not None
    assert api.llama_n_seq_max(context.pointer) == sequences
    assert context.can_verify_tree == (sequences > 1)
    model.close()


def mapped_share(path: Path) -> float:
    """Share of a mapped file that this process has in its memory."""
    smaps = Path("/proc/self/smaps").read_text()
    of_file = [block for block in re.split(r"\n(?=[0-9a-f]+-)", smaps) if str(path) in block]
    sizes = [re.search(r"^Rss:\s+(\d+) kB", block, re.MULTILINE) for block in of_file]
    return sum(1024 * int(found[1]) for found in sizes if found) / path.stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reads a file while mapping it")
@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_file_is_only_mapped(demo_file: Path, tmp_path: Path, is_lazy: bool):
    library.start()
    parameters = api.llama_model_default_params()
    parameters.load_mode, parameters.use_extra_bufts, parameters.n_gpu_layers = 1, False, 0
    path = tmp_path / "copy.gguf"
    path.write_bytes(demo_file.read_bytes())
    with ExitStack() as stack:
        if is_lazy:
            only_map(stack)
        pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    assert pointer is not None
    share = mapped_share(path)
    api.llama_model_free(pointer)
    assert share < 0.1 if is_lazy else share > 0.9


_COPIED = ("AVX2 = 1", "DOTPROD = 1")
"""Processors for which Q4_0 is rearranged."""


@pytest.mark.skipif(
    not any(one in library.system_info() for one in _COPIED), reason="weights stay where they are"
)
def test_a_blank_model_runs_without_the_weights_that_would_be_copied(
    tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = api.LLAMA_FTYPE_MOSTLY_Q4_0
    path = tmp_path / "packed.gguf"
    source, target = os.fsencode(tiny_llama()), os.fsencode(path)
    api.llama_model_quantize(source, target, parameters)  # pyright: ignore[reportArgumentType]

    def logits(*, blank: bool) -> Logits:
        with closing(llamacpp.load(path, threads=1, blank=blank)) as model:
            return model.open(64).forward(PROMPT, 1).copy()

    empty, whole = logits(blank=True), logits(blank=False)
    assert not np.allclose(empty, whole)
    logits(blank=True)  # in memory that may still hold the weights
    np.testing.assert_array_equal(logits(blank=False), whole)  # the engine is as it was


class _Room(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("at", ctypes.c_void_p),
        ("without_data", ctypes.c_bool),
    ]


@pytest.mark.parametrize(
    ("kind", "is_copied"),
    [
        (api.GGML_TYPE_F32, True),
        (api.GGML_TYPE_I32, True),
        (api.GGML_TYPE_F16, False),
        (api.GGML_TYPE_Q4_0, False),
    ],
)
def test_tables_are_copied_into_a_blank_model(kind: int, is_copied: bool) -> None:
    """An index that is no row's would have a GPU read beyond its memory."""
    library.start()
    base = library.shared_library("ggml-base")
    of_processor = library.shared_library("ggml-cpu").ggml_backend_cpu_buffer_type
    make, add, allocate = (
        getattr(base, f"ggml_{name}")
        for name in ("init", "new_tensor_1d", "backend_alloc_ctx_tensors_from_buft")
    )
    for call in (make, add, allocate, of_processor):
        call.restype = ctypes.c_void_p
    room = ctypes.c_void_p(make(_Room(4096, None, True)))
    tensor = ctypes.c_void_p(add(room, kind, ctypes.c_int64(32)))
    with ExitStack() as stack:
        leave_out_matrices(stack)
        buffer = ctypes.c_void_p(allocate(room, ctypes.c_void_p(of_processor())))
    base.ggml_backend_buffer_clear(buffer, 0)
    given, size = b"\1" * 8, ctypes.c_size_t(8)
    kept = ctypes.create_string_buffer(8)
    base.ggml_backend_tensor_set(tensor, given, ctypes.c_size_t(0), size)
    base.ggml_backend_tensor_get(tensor, kept, ctypes.c_size_t(0), size)
    base.ggml_backend_buffer_free(buffer)
    base.ggml_free(room)
    assert kept.raw == (given if is_copied else bytes(8))
