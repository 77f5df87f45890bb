"""Heads that read the last state of any model: Medusa (arXiv 2401.10774), Hydra (arXiv 2402.05109).

Each is a small network over the state that the model's output layer read last, and the embeddings
of the tokens since then (none for Medusa); a recurrent one has its own state between them, as
ReDrafter (arXiv 2403.09919). specchat trains and runs these; the layout is its own.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from backends.files.head_folders.shapes import MAP, Tensors
from backends.files.head_folders.stored_head import Settings, StoredHead

LAST_STATE = "last_state"
"""Its model_type."""

MEDUSA, HYDRA, RECURRENT = "medusa", "hydra", "recurrent"

_MOST_HEADS = 16
_WEIGHT = ".weight"


@dataclass(frozen=True, slots=True)
class LastStateLayout:
    """Shapes of a head.

    names: of stored tensors by common names. width: of the model's states and its own. rank: of its
    output, 0 if that is one matrix. has_map: whether it lists the tokens that it drafts.
    """

    names: dict[str, str]
    method: str
    width: int
    feed_forward: int
    heads: int
    n_vocab: int
    n_drafted: int
    rank: int
    epsilon: float
    has_map: bool

    def inputs(self, head: int) -> int:
        """Rows of width numbers that a head reads side by side."""
        return {MEDUSA: 1, RECURRENT: 3}.get(self.method, 2 + head)

    @property
    def output_numbers(self) -> int:
        return self.rank * (self.width + self.n_drafted) or self.width * self.n_drafted

    @property
    def numbers(self) -> int:
        """All weights."""
        own = sum(self.inputs(head) * self.width + 3 * self.feed_forward + 2
                  for head in range(self.heads))  # fmt: skip
        return own * self.width + self.output_numbers

    @property
    def draw_numbers(self) -> int:
        """Weights read to draft a token."""
        return self.output_numbers + (self.numbers - self.output_numbers) // self.heads


def last_state_layout(head: StoredHead) -> LastStateLayout:
    """The layout of a head in a folder.

    Raises:
        ValueError: a part is missing, or is not known, in words.
    """
    settings, tensors = head.settings, Tensors(head, _common)
    method = settings.text("method")
    if method not in (MEDUSA, HYDRA, RECURRENT):
        raise ValueError(f"method in its config.json is {method[:40]!r}, which is not known")
    heads = settings.count("num_heads", 1)
    if not 0 < heads <= (1 if method == RECURRENT else _MOST_HEADS):
        raise ValueError(f"num_heads in its config.json is {heads:,}")
    width, feed_forward = tensors.matrix("heads.0.down")
    rank, n_drafted = _output(tensors, width)
    layout = LastStateLayout(
        names=tensors.names,
        method=method,
        width=width,
        feed_forward=feed_forward,
        heads=heads,
        n_vocab=_vocabulary(settings, n_drafted),
        n_drafted=n_drafted,
        rank=rank,
        epsilon=settings.positive("rms_norm_eps", 1e-5),
        has_map=MAP in tensors.by_name,
    )
    for number in range(heads):
        name = f"heads.{number}"
        tensors.require(f"{name}.input", width, layout.inputs(number) * width)
        tensors.require(f"{name}.gate", feed_forward, width)
        tensors.require(f"{name}.up", feed_forward, width)
        tensors.require(f"{name}.down", width, feed_forward)
        tensors.vector(f"{name}.norm{_WEIGHT}", width)
        tensors.vector(f"{name}.output_norm{_WEIGHT}", width)
    listed = tensors.by_name.get(MAP)
    if (listed.shape if listed else (layout.n_vocab,)) != (n_drafted,):
        raise ValueError(
            f"it drafts {n_drafted:,} of {layout.n_vocab:,} tokens; {MAP} lists others"
        )
    tensors.refuse_others()
    return layout


def _common(name: str) -> str:
    return name if name == MAP or name.endswith(_WEIGHT) else name + _WEIGHT


def _output(tensors: Tensors, width: int) -> tuple[int, int]:
    """The output's rank, 0 for one matrix, and the tokens that it knows."""
    if not tensors.has("lm_head.up"):
        n_drafted = tensors.matrix("lm_head")[0]
        tensors.require("lm_head", n_drafted, width)
        return 0, n_drafted
    n_drafted, rank = tensors.matrix("lm_head.up")
    tensors.require("lm_head.down", rank, width)
    return rank, n_drafted


def _vocabulary(settings: Settings, n_drafted: int) -> int:
    n_vocab = settings.count("vocab_size")
    if not n_drafted <= n_vocab:
        raise ValueError(f"it drafts {n_drafted:,} of {n_vocab:,} tokens (vocab_size)")
    if settings.count("draft_vocab_size", n_drafted) != n_drafted:
        raise ValueError(f"its output knows {n_drafted:,} tokens (draft_vocab_size)")
    return n_vocab


_STORED = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read_floats(head: StoredHead, names: dict[str, str]) -> dict[str, NDArray[np.float32]]:
    """Tensors of floats by common name, as names has the stored ones.

    Raises:
        OSError: a file cannot be read.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for name, stored in names.items():
        tensor = head.tensors[stored]
        values = np.fromfile(
            head.files[stored],
            _STORED[tensor.dtype],
            int(np.prod(tensor.shape)),
            offset=tensor.offset,
        )
        if tensor.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        found[name] = cast("NDArray[np.float32]", values.astype(np.float32).reshape(tensor.shape))
    return found
