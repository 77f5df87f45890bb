"""EAGLE-3 heads on MLX: logits by definition, in every variant, and replies of the model's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx: Any = pytest.importorskip("mlx.core", reason="MLX is not installed")

from backends.base import Logits, ModelError
from backends.mlx.heads.head import load_head
from tests.fixtures.tiny.eagle3_reference import Eagle3Reference
from tests.fixtures.tiny.head_folder import HeadFolderParts, parts_of_folder
from tests.fixtures.tiny.head_rows import difference, read
from tests.fixtures.tiny.heads import DRAFTED, EAGLE3_TAPS
from tests.fixtures.tiny.mlx_pairs import Twin, opened, opened_kind
from tests.fixtures.tiny.tiny_file import HEAD, WIDTH

TEXT = [1, 75, 300, 299, 310, 75, 98, 112, 40, 41, 250]
GUESSED = [305, 210, 220]
ROUNDING = 1e-3
"""Of logits of 6, in float32 against float64, and in passes of other lengths."""


Variant = Callable[[HeadFolderParts], None]


def norms(name: str, size: int) -> Variant:
    random = np.random.default_rng(8)

    def change(parts: HeadFolderParts) -> None:
        values = 1.0 + 0.3 * random.normal(size=size)
        parts.tensors[f"{name}.weight"] = values.astype(np.float32)

    return change


def setting(**values: Any) -> Variant:
    return lambda parts: parts.settings.update(values)


VARIANTS: dict[str, list[Variant]] = {
    "plain": [],
    "adds to the normed": [setting(norm_before_residual=True)],
    "normed together": [
        setting(norm_before_fc=True),
        norms("input_norm", len(EAGLE3_TAPS) * WIDTH),
    ],
    "normed each": [
        setting(fc_norm=True),
        *(norms(f"fc_norm.{tap}", WIDTH) for tap in range(len(EAGLE3_TAPS))),
    ],
    "hands on the normed": [setting(norm_output=True)],
    "norms of heads": [norms(f"midlayer.self_attn.{part}_norm", HEAD) for part in "qk"],
    "a window": [setting(layer_types=["sliding_attention"], sliding_window=4)],
    "another base": [setting(rope_theta=500.0)],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_the_definition(twin_of: Twin, tmp_path: Path, name: str) -> None:
    parts = parts_of_folder(twin_of("eagle3"))
    for change in VARIANTS[name]:
        change(parts)
    with opened(twin_of("llama"), parts.write(tmp_path)) as pair:
        pair.context.forward(TEXT, 1)
        states = pair.drafts._states.rows(0, len(TEXT)).copy()
        found = [pair.drafts.forward([*TEXT, GUESSED[0]], len(TEXT))]
        found += [pair.drafts.forward([token], 1).copy() for token in GUESSED[1:]]
    rows = np.vstack(found)[:, list(DRAFTED)]
    reference = Eagle3Reference(parts.settings, parts.tensors)
    expected = reference.logits([*TEXT, *GUESSED], states, own=len(GUESSED) - 1)
    assert np.abs(rows - expected).max() < ROUNDING
    plain = Eagle3Reference(*_plain(twin_of)).logits([*TEXT, *GUESSED], states, len(GUESSED) - 1)
    is_other = bool(np.abs(plain - expected).max() > 0.01)
    assert is_other is (name != "plain"), "a variant is another head"


def _plain(twin_of: Twin) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = parts_of_folder(twin_of("eagle3"))
    return parts.settings, parts.tensors


def test_quantized_heads_draft_about_the_same(twin_of: Twin, tmp_path: Path) -> None:
    parts = parts_of_folder(twin_of("eagle3"))
    parts.settings["quantization"] = {"group_size": 32, "bits": 8}
    for name in [name for name, values in parts.tensors.items() if values.ndim == 2]:
        packed = mx.quantize(mx.array(parts.tensors.pop(name)), group_size=32, bits=8)
        stem = name.removesuffix(".weight")
        for part, values in zip(("weight", "scales", "biases"), packed, strict=True):
            parts.tensors[f"{stem}.{part}"] = np.array(values)
    rows: list[Logits] = []
    for head in (twin_of("eagle3"), parts.write(tmp_path)):
        with opened(twin_of("llama"), head) as pair:
            pair.context.forward(TEXT, 1)
            rows.append(read(pair.drafts, [*TEXT, 40]))
    assert 0.0 < difference(rows[1], rows[0]) < 0.3


def test_a_folder_that_is_no_head_is_refused(twin_of: Twin) -> None:
    with (
        opened_kind(twin_of, "eagle3") as pair,
        pytest.raises(ModelError, match="brings nothing that drafts"),
    ):
        load_head(twin_of("llama"), pair.model, pair.context)


@pytest.mark.parametrize("is_borrowed", [False, True])
def test_the_output_layer_is_read_for_each_token(
    twin_of: Twin, tmp_path: Path, is_borrowed: bool
) -> None:
    """The model's own where a head brings none."""
    parts, model = parts_of_folder(twin_of("eagle3-borrowing")), parts_of_folder(twin_of("llama"))
    if is_borrowed:
        for name in ("lm_head.weight", "d2t"):
            parts.tensors.pop(name, None)
        del parts.settings["draft_vocab_size"]
    output = (model if is_borrowed else parts).tensors["lm_head.weight"]
    layer = sum(
        array.nbytes
        for name, array in parts.tensors.items()
        if name.startswith("midlayer.") or name == "norm.weight"
    )
    with opened(twin_of("llama"), parts.write(tmp_path)) as pair:
        assert pair.head.info.bytes_read_per_token == layer + output.nbytes


def test_a_model_that_cannot_be_read_refuses_a_head_in_words(
    twin_of: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code of an architecture may raise anything, and the answer goes on without the head."""

    def fail(_: object) -> None:
        raise TypeError("no such cache")

    with opened_kind(twin_of, "eagle3") as pair:
        with monkeypatch.context() as patch:
            patch.setattr("backends.mlx.heads.taps.make_caches", fail)
            with pytest.raises(ModelError, match="no such cache"):
                pair.head.open_beside(pair.context)
        pair.context.forward(TEXT, 1)
        assert len(pair.context.taps._states) == 1
