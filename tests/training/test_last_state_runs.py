"""A last-state head says in an engine what it said when it was trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.files.gguf_drafter import TrainedKind
from backends.files.head_folders.head_folder import HeadFolder, drafter_of_head, layout_of
from backends.files.head_folders.shapes import drafted_tokens
from backends.files.head_folders.stored_head import read_head
from backends.heads.last_state import LastStateNet, Place
from tests.fixtures.taught import METHODS, cache_of, net_of, sample, source
from tests.training.conftest import opened
from tests.training.test_nets import settings

HALVES = 5e-3
"""Of logits, by the half precision of stored weights."""


def loaded(folder: Path) -> LastStateNet:
    head = read_head(folder)
    drafter = drafter_of_head(head)
    assert drafter is not None
    assert drafter.fault == ""
    listed = drafted_tokens(head.files["d2t"], head.tensors["d2t"], drafter.n_vocab)
    found = HeadFolder(head, drafter, layout_of(head, TrainedKind.LAST_STATE), listed)
    rows = source().embeddings.astype(np.float32)
    return LastStateNet(embed=lambda tokens: rows[[*tokens]], **found.last_state()[0])


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("library", ["mlx", "torch"])
def test_logits_are_those_of_training(library: str, method: str, tmp_path: Path) -> None:
    arrays = opened(library)
    net: Any = net_of(cache_of(tmp_path / "samples"), settings(method), arrays, source())
    random = np.random.default_rng(5)
    weights = {
        name: values + random.normal(0.0, 0.05, values.shape).astype(np.float32)
        for name, values in net.first_weights().items()
    }
    text = sample(40)
    on_device = {name: arrays.array(one) for name, one in weights.items()}
    told = [arrays.numpy(one) for one in net.logits(on_device, net.prepared([text], None))]
    net.write(weights, tmp_path / "head")
    runs, tokens = loaded(tmp_path / "head"), text.tokens.tolist()
    row = np.full(runs.n_vocab, -np.inf, np.float32)
    for start in range(0, len(tokens) - 5, 3):
        place = Place(text.states[start, -1].astype(np.float32))
        for position, wanted in enumerate(told):
            place = runs.after(place, tokens[start + 1 + position])
            runs.write(place, row)
            known = row[net.vocabulary.drafted]
            spread = np.abs(wanted[0, start]).max()
            assert np.abs(known - wanted[0, start]).max() < HALVES * max(spread, 1.0)
    assert np.isneginf(np.delete(row, net.vocabulary.drafted)).all()
