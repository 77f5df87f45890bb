"""Memory bills against what llama.cpp allocates, for every architecture that it loads."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends.files.attention import Layers, attention_of, head_attention, state_bytes
from backends.files.gguf_header import GgufHeader, Number, read_header
from models.metadata.memory_bill import compute_bytes, facts_of
from tests.fixtures.tiny.architectures import N_TOKENS, names, opened, write_architecture
from tests.fixtures.tiny.kinds import MODELS, Tiny

N_CTX = 4096
_ROUNDING = 0.0051 * (1 << 20)
"""The engine logs sizes in MiB with two decimals."""

NO_MODELS = {
    "clip", "dflash", "eagle3", "gemma4-assistant", "gptj", "qwen3tts", "t5encoder",
    "wavtokenizer-dec",
}  # fmt: skip
"""Heads, encoders and other parts, which are not loaded as models."""

UNTRIED = {"deepseek4", "plm", "rwkv6", "rwkv6qwen2"}
"""Models whose made up headers the engine does not take."""

BEYOND = {
    "chameleon",  # copies its logits
    "gemma3n",  # inputs of every layer, which its logits exceed in published models
    "grok", "t5",  # scores of whole passes: without flash attention
    "deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "minimax-m3",  # indexers' scores
}  # fmt: skip
"""Models whose compute buffer is larger than its bill."""

UNEVEN = ("deci", "gemma4", "laguna", "lfm2", "mimo2", "openelm", "plamo3", "spark2_5", "step35")
"""Models whose layers may have different numbers of heads."""


def check(paths: dict[Path, str]) -> tuple[set[str], set[str]]:
    """Compare bills with the engine; returns what was compared, and what could not be opened.

    Weights, cache and running state are promised within 2 %; the compute buffer is at most 2 %
    larger than its bill, which may be above it.
    """
    compared: set[str] = set()
    failed: set[str] = set()
    for path, taken in opened(list(paths), N_CTX).items():
        name = paths[path]
        if isinstance(taken, str):
            failed.add(name)
            continue
        facts = facts_of(path)
        facts = replace(facts, state_bytes=state_bytes(read_header(path)))  # without copies
        bills = {"weights": facts.weight_bytes}
        if {"KV", "RS"} & taken.keys():  # models that only encode keep nothing
            compared.add(name)
            bills |= {"KV": facts.attention.cache_bytes(N_CTX), "RS": facts.state_bytes}
            is_billed = compute_bytes(facts, N_CTX, N_TOKENS) >= 0.98 * taken["compute"]
            assert is_billed == (name not in BEYOND), name
        for purpose, size in bills.items():
            allocated = taken.get(purpose, 0.0)
            assert abs(size - allocated) <= max(0.02 * allocated, _ROUNDING), (name, purpose)
    return compared, failed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names are read from the engine's library")
def test_bills_of_every_architecture_are_the_engines(tmp_path: Path) -> None:
    every = names()
    headers = {write_architecture(tmp_path / f"{name}.gguf", name): name for name in every}
    compared, failed = check(headers)
    encoders = {name for name in failed if "bert" in name}
    assert failed - encoders == NO_MODELS | UNTRIED
    assert len(compared) > 100
    uneven = {
        write_architecture(tmp_path / f"{name}-uneven.gguf", name, uneven=True): name
        for name in UNEVEN
    }
    assert check(uneven) == (set(UNEVEN), set())


@pytest.mark.parametrize("kind", MODELS)
def test_a_file_tells_what_its_model_does(llamacpp: ModuleType, tiny: Tiny, kind: str) -> None:
    path = tiny(kind)
    with closing(llamacpp.load(path)) as model, closing(model.open(256)) as context:
        facts = facts_of(path)
        assert facts.attention.cache_bytes(256) == 256 * context.kv_bytes_per_token
        assert facts.state_bytes == context.state_bytes
        state = facts.state_bytes if facts.attention.state_layers else 0
        assert sum(facts.layer_bytes(256)) == facts.attention.cache_bytes(256) + state
        assert facts.read_bytes == model.info.bytes_read_per_token


def published(architecture: str, lists: dict[str, tuple[Number, ...]], **keys: int) -> GgufHeader:
    metadata = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    arrays = {f"{architecture}.{key}": values for key, values in lists.items()}
    return GgufHeader({"general.architecture": architecture, **metadata}, {}, (), arrays)


MLA = {
    "attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512,
    "attention__key_length_mla": 192, "attention__value_length_mla": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("header", "numbers"),
    [
        # DeepSeek V3 and GLM 4.7 Flash: a row of 576 for each layer, and none that predicts ahead
        (published("deepseek2", {}, block_count=61, attention__head_count=128, **MLA), 61 * 576),
        (
            published(
                "deepseek2", {}, block_count=48, nextn_predict_layers=1,
                attention__head_count=20, **MLA,
            ),
            47 * 576,
        ),
        # Kimi Linear: one of four layers, the others keep a running state
        (
            published(
                "kimi-linear", {"attention.head_count_kv": (0, 0, 0, 1) * 6}, block_count=24,
                attention__head_count=32, kda__head_dim=128,
                **{key: size for key, size in MLA.items() if key != "attention__head_count_kv"},
            ),
            6 * 576,
        ),
        # Gemma 4 31B: five of six layers see a window and have more heads, which are smaller
        (
            published(
                "gemma4",
                {
                    "attention.head_count_kv": (16, 16, 16, 16, 16, 4) * 10,
                    "attention.sliding_window_pattern": (1, 1, 1, 1, 1, 0) * 10,
                },
                block_count=60, attention__head_count=32, attention__sliding_window=1024,
                attention__key_length=512, attention__value_length=512,
                attention__key_length_swa=256, attention__value_length_swa=256,
            ),
            50 * 16 * 512 + 10 * 4 * 1024,
        ),
    ],
)  # fmt: skip
def test_published_models_keep_what_their_layers_keep(header: GgufHeader, numbers: int) -> None:
    assert attention_of(header).numbers_per_token == numbers


def test_layers_that_predict_ahead_keep_what_theirs_do() -> None:
    flash = published(
        "deepseek2", {}, block_count=48, nextn_predict_layers=1, attention__head_count=20, **MLA
    )
    assert head_attention(flash, 1).numbers_per_token == 576
    lists: dict[str, tuple[Number, ...]] = {
        "attention.head_count_kv": (4, 8, 8, 2),
        "attention.sliding_window_pattern": (0, 1, 1, 1),
    }
    mixed = published(
        "mimo2", lists, block_count=4, nextn_predict_layers=1, attention__head_count=16,
        attention__key_length=192, attention__value_length=128, attention__sliding_window=128,
        attention__key_length_swa=96, attention__value_length_swa=64,
    )  # fmt: skip
    assert head_attention(mixed, 1).numbers_per_token == 2 * (96 + 64)
    assert attention_of(mixed).numbers_per_token == 4 * (192 + 128) + 2 * 8 * (96 + 64)


def test_a_count_of_layers_of_one_kind_is_their_sum() -> None:
    assert Layers(3, 2, 8, 4, index_size=5).numbers_per_token == 3 * (2 * 12 + 5)
