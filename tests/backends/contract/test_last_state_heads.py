"""Heads over the last state on both engines: what they say, lines and trees, and refusals."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import ModelError
from tests.fixtures.tiny.head_folder import HeadFolderParts
from tests.fixtures.tiny.head_pair import N_CTX, Pair
from tests.fixtures.tiny.head_pair import opened as opened_files
from tests.fixtures.tiny.head_rows import difference
from tests.fixtures.tiny.heads import SAID
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.last_state import METHODS, expected, last_state_parts, write_last_state
from tests.fixtures.tiny.mlx_pairs import Twin, TwinPair
from tests.fixtures.tiny.mlx_pairs import opened as opened_folders
from tests.fixtures.tiny.tiny_file import WIDTH

PROMPT = [1, 75, 290, 299, 210, 75, 98, 112]
SINCE = [130, 201, 299, 305]
TREE = [201, 130, 299, 305], [-1, -1, 0, 2]
ROUNDING = 1e-3

Open = Callable[[Path], AbstractContextManager[Pair | TwinPair]]


@pytest.fixture(params=["llamacpp", "mlx"])
def open_head(request: pytest.FixtureRequest) -> Open:
    """Opens a head's folder beside a model; llama.cpp hands out no layers of its architecture."""
    if request.param == "llamacpp":
        pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
        tiny: Tiny = request.getfixturevalue("tiny")
        return lambda folder: opened_files(tiny("qwen3"), folder)
    pytest.importorskip("mlx_lm", reason="MLX is not installed")
    twin_of: Twin = request.getfixturevalue("twin_of")
    return lambda folder: opened_folders(twin_of("qwen3"), folder)


@pytest.fixture
def embeddings(tiny: Tiny) -> NDArray:
    tensors = gguf.GGUFReader(tiny("qwen3")).tensors
    return next(np.array(one.data) for one in tensors if one.name == "token_embd.weight")


def state_of(pair: Pair | TwinPair, text: Sequence[int]) -> NDArray:
    """What the output layer reads after a text, by a context of its own."""
    with closing(pair.model.open(N_CTX)) as context:
        beside: Any = pair.head.open_beside(context)
        context.forward(text, len(text))
        row = beside._states.rows(len(text) - 1, len(text))[0].copy()
        beside.close()
    return row


@pytest.mark.parametrize("method", METHODS)
def test_lines_and_trees_say_what_the_papers_write(
    open_head: Open, embeddings: NDArray, tmp_path: Path, method: str
) -> None:
    parts = last_state_parts(method)
    with open_head(write_last_state(tmp_path, method)) as pair:
        state, drafts = state_of(pair, PROMPT), pair.drafts
        assert np.abs(state).max() > 0.1
        pair.context.forward(PROMPT, len(PROMPT))
        drafts.forward([*PROMPT, SINCE[0]][:-1], 0)
        for count, token in enumerate(SINCE, 1):
            row = drafts.forward([token], 1)[0].copy()
            wanted = expected(parts, state, embeddings[SINCE[:count]])
            assert np.isneginf(np.delete(row, SAID)).all()
            assert np.abs(row[list(SAID)] - wanted).max() < ROUNDING
        drafts.truncate(len(PROMPT) + 1)
        rows = drafts.forward_tree(*TREE).copy()
        nodes, parents = TREE
        for node, row in enumerate(rows):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            tokens = [SINCE[0], *(nodes[one] for one in path)]
            wanted = expected(parts, state, embeddings[tokens])
            assert np.abs(row[list(SAID)] - wanted).max() < ROUNDING
        drafts.commit([0, 2])
        assert drafts.tokens == [*PROMPT, SINCE[0], 201, 299]
        after = drafts.forward([112], 1)
        wanted = expected(parts, state, embeddings[[SINCE[0], 201, 299, 112]])
        assert np.abs(after[0, list(SAID)] - wanted).max() < ROUNDING


def test_the_state_is_that_which_the_output_layer_reads(
    open_head: Open, tiny: Tiny, tmp_path: Path
) -> None:
    tensors = {one.name: one.data for one in gguf.GGUFReader(tiny("qwen3")).tensors}
    output = tensors.get("output.weight", tensors["token_embd.weight"])
    with open_head(write_last_state(tmp_path, "hydra", None)) as pair:
        logits = pair.context.forward(PROMPT, 1)[0].copy()
        found = output @ state_of(pair, PROMPT)
    assert difference(found[None], logits[None]) < 0.02


def test_after_any_draft_it_is_as_if_it_had_drafted_nothing(
    open_head: Open, tmp_path: Path
) -> None:
    with open_head(write_last_state(tmp_path, "hydra")) as pair:
        pair.context.forward(PROMPT, len(PROMPT))
        drafts, text = pair.drafts, [*PROMPT, 75]
        drafts.forward(text, 1)
        for accepted in range(len(SINCE) + 1):
            for token in SINCE:
                drafts.forward([token], 1)
            pair.context.forward([text[-1], *SINCE], len(SINCE) + 1)
            pair.context.truncate(len(text) + accepted)
            text += [*SINCE[:accepted], 310]
            late = pair.head.open_beside(pair.context)
            pair.context.truncate(0)
            pair.context.forward(text[:-1], len(text) - 1)
            drafts.truncate(drafts.rollback_to(len(text) - 1))
            found = drafts.forward(text[drafts.length :], 1).copy()
            assert difference(late.forward(text, 1), found) < ROUNDING
            late.close()


def test_before_its_model_has_read_anything_it_takes_as_long(
    open_head: Open, tmp_path: Path
) -> None:
    with open_head(write_last_state(tmp_path, "hydra")) as pair:
        rows = pair.drafts.forward(PROMPT, len(PROMPT))
        assert np.isfinite(rows[:, list(SAID)]).all()
        pair.context.forward(PROMPT, 1)  # of which states are known of the last token at most
        assert np.isfinite(pair.drafts.forward([5], 1)[0, list(SAID)]).all()


def test_a_closed_head_leaves_the_model_as_it_was(open_head: Open, tmp_path: Path) -> None:
    with open_head(write_last_state(tmp_path, "hydra")) as pair:
        pair.context.forward(PROMPT[:3], 3)
        pair.head.close()
        rows = pair.context.forward(PROMPT[3:], 1).copy()
        with closing(pair.model.open(N_CTX)) as fresh:
            assert difference(rows, fresh.forward(PROMPT, 1)) < ROUNDING


def widened(parts: HeadFolderParts) -> None:
    for name, values in parts.tensors.items():
        if name.endswith("down") and name.startswith("heads"):
            parts.tensors[name] = np.repeat(values, 2, axis=0)


def without(name: str) -> Callable[[HeadFolderParts], None]:
    def change(parts: HeadFolderParts) -> None:
        del parts.tensors[name]

    return change


def with_settings(**settings: object) -> Callable[[HeadFolderParts], None]:
    return lambda parts: parts.settings.update(settings)


def with_tensor(name: str, values: NDArray) -> Callable[[HeadFolderParts], None]:
    return lambda parts: parts.tensors.update({name: values})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without("heads.1.gate"), "it lacks heads.1.gate"),
        (without("lm_head.weight"), "it lacks lm_head"),
        (without("d2t"), "it drafts 8 of 354 tokens"),
        (with_settings(method="medusa2"), "which is not known"),
        (with_settings(num_heads=99), "num_heads in its config.json is 99"),
        (with_settings(vocab_size=400), "it knows 400 tokens, the model 354"),
        (with_settings(draft_vocab_size=9), "its output knows 8 tokens"),
        (with_settings(rms_norm_eps="small"), "rms_norm_eps"),
        (with_tensor("heads.0.up", np.zeros((48, 64), np.int64)), "is of type I64"),
        (with_tensor("heads.0.norm", np.zeros(63, np.float32)), "63 numbers, not 64"),
        (with_tensor("heads.9.up", np.zeros((48, 64), np.float32)), "which is not known"),
        (with_tensor("d2t", np.full(8, 400, np.int64)), "d2t leads to tokens"),
        (widened, "is 64 × 128, not 128 × 256"),
    ],
)
def test_damaged_and_foreign_heads_are_refused(
    open_head: Open, tmp_path: Path, change: Callable[[HeadFolderParts], None], why: str
) -> None:
    parts = last_state_parts("hydra")
    change(parts)
    with pytest.raises(ModelError, match=why), open_head(parts.write(tmp_path)):
        pass


def test_a_head_for_a_model_of_another_width_is_refused(open_head: Open, tmp_path: Path) -> None:
    parts = last_state_parts("medusa")
    half = WIDTH // 2
    for name, values in parts.tensors.items():
        rows = values[:half] if len(values) == WIDTH else values
        parts.tensors[name] = rows[:, :half] if rows.ndim > 1 and rows.shape[1] == WIDTH else rows
    parts.settings["hidden_size"] = half
    why = "it reads hidden states of 32 numbers; the model's have 64"
    with pytest.raises(ModelError, match=why), open_head(parts.write(tmp_path)):
        pass


def test_a_file_that_is_cut_short_is_refused(open_head: Open, tmp_path: Path) -> None:
    weights = write_last_state(tmp_path, "hydra") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ModelError, match="damaged or cut short"), open_head(tmp_path):
        pass
