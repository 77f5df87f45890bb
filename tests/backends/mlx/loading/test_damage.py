"""Folders damaged at random: an error of ours or none, and never the end of the process."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends import mlx as backend
from backends.base import SpecchatError
from tests.backends.mlx.conftest import INDEX, SHARDS

FUZZED = ("config.json", INDEX, SHARDS[0], "tokenizer.json", "tokenizer_config.json")

common = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@common
@given(st.data())
def test_damage_of_any_kind_is_an_error_of_ours_or_none(sharded: Path, data: st.DataObject) -> None:
    file = sharded / data.draw(st.sampled_from(FUZZED))
    good = file.read_bytes()
    damaged = bytearray(good)
    near = min(len(good), 4_000)  # of weights the header
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, near - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(good)))]
    file.write_bytes(damaged)
    with suppress(SpecchatError):
        backend.load(sharded).close()
    file.write_bytes(good)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 40), 1 << 40),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.sampled_from(["bits", "rope_type", "type", "factor"]), st.integers()),
)


@common
@given(st.data())
def test_settings_of_any_kind_are_an_error_of_ours_or_none(
    folder: Path, data: st.DataObject
) -> None:
    good = (folder / "config.json").read_text()
    names = [*json.loads(good), "rope_scaling", "quantization", "text_config", "head_dim"]
    changes = data.draw(st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=2))
    (folder / "config.json").write_text(json.dumps(json.loads(good) | changes))
    with suppress(SpecchatError):
        backend.load(folder).close()
    (folder / "config.json").write_text(good)
