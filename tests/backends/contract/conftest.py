"""Small models of both engines: one law holds for all of them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from backends.base import Context, Logits, Model, SharedContext
from tests.fixtures.hybrids import KINDS
from tests.fixtures.mlx_models import HYBRIDS, WINDOW

READ_AGAIN = "read-again"
"""Of a kind whose scans are not run again: its tokens are read again."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model; rounding: by which its logits may differ between passes of other shapes."""

    model: Model
    rounding: float
    window: int = 40
    """Tokens that layers see at least, or some number of the same order."""
    is_forked: bool = False
    """Whether its contexts are forks, of one whose tokens lie between theirs."""

    def open(self, n_ctx: int) -> Context:
        """A context with room for so many tokens, which closes with the model if not before."""
        if not self.is_forked:
            return self.model.open(n_ctx)
        main = self.model.open(n_ctx + 20)
        assert isinstance(main, SharedContext)
        main.forward(range(5, 15), 0)
        fork = main.fork(main, 0)
        fork.forward(range(5), 0)
        main.forward(range(15, 25), 0)
        fork.truncate(0)
        return fork

    def near(self, some: Logits, others: Logits) -> bool:
        """Whether logits are the same but for rounding; to the bit if there is none."""
        return bool(np.abs(some - others).max() <= self.rounding)


_PLAIN = ["llamacpp", "mlx-plain", "mlx-sliding", "mlx-experts"]


@pytest.fixture(scope="module", params=_PLAIN)
def plain(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Models whose contexts keep an entry for each token, and run trees."""
    yield from _loaded(request)


@pytest.fixture(scope="module", params=[*_PLAIN, "llamacpp-forked"])
def lines(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """The same, and one whose contexts run lines alone."""
    yield from _loaded(request)


def _loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Rows of llama.cpp that lie elsewhere in the cache add up otherwise: 0.013 was the most of
    6,000 passes. Logits of MLX are of the order of 10.
    """
    engine, _, kind = request.param.partition("-")
    if engine == "llamacpp":
        backend = _llamacpp(request)
        file = request.getfixturevalue("tiny_llama")()
        with closing(backend.load(file, threads=1)) as model:
            yield Loaded(model, 0.02, is_forked=kind == "forked")
    else:
        with closing(_mlx(request, kind)) as model:
            yield Loaded(model, 1e-3, 2 * WINDOW)


_HYBRIDS = [
    *(f"llamacpp-{kind}" for kind in KINDS),
    *(f"mlx-{kind}" for kind in (*HYBRIDS, "parallel", "rwkv", f"deltanet {READ_AGAIN}")),
]


@pytest.fixture(scope="module", params=_HYBRIDS)
def stateful(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Models with a running state, whose last pass can be taken back.

    A state is larger beside the weights of such small models than in any other.
    """
    engine, _, kind = request.param.partition("-")
    kind, _, way = kind.partition(" ")
    with pytest.MonkeyPatch.context() as patch:
        if engine == "llamacpp":
            folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
            patch.setattr("backends.files.attention._SHARE", 1)
            file = KINDS[kind](folders.mktemp("hybrid") / f"{kind}.gguf")
            model = _llamacpp(request).load(file, threads=1)
        else:
            pytest.importorskip("mlx_lm", reason="MLX is not installed")
            if way:
                patch.setattr("backends.mlx.running_state.is_mixer", lambda module: False)
            model = _mlx(request, kind)
        with closing(model):
            yield Loaded(model, 0.0 if engine == "llamacpp" else 1e-4)


@pytest.fixture
def context(stateful: Loaded) -> Iterator[Context]:
    with closing(stateful.model.open(512)) as context:
        yield context


def _llamacpp(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("llamacpp")


def _mlx(request: pytest.FixtureRequest, kind: str) -> Model:
    pytest.importorskip("mlx_lm", reason="MLX is not installed")
    from backends import mlx

    return mlx.load(request.getfixturevalue("small_mlx")(kind))
