"""A GPU that fails ends the call that meets it, not the process; the rest goes on without it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from backends import llamacpp
from backends.base import Context, DeviceLostError, OutOfMemoryError, UsageError
from backends.hardware import gpu_loss
from backends.llamacpp import library
from backends.llamacpp.loading import vocabulary
from tests.fixtures import fake_gpu
from tests.fixtures.fake_gpu import GPU, NO_KERNELS
from tests.fixtures.tiny.kinds import Tiny

LOST = "unspecified launch failure"


def lost(context: Context) -> str:
    with pytest.raises(DeviceLostError) as told:
        context.forward([3], 1)
    return told.value.why


def lose(path: Path) -> None:
    fake_gpu.install()
    with closing(llamacpp.load(path, threads=1, gpu_layers=0)) as beside:
        processor = beside.open(128)
        expected = processor.forward(list(range(5, 70)), 1).copy()
        assert GPU.passes == 0, "without layers there, no pass runs on a GPU"
        model = llamacpp.load(path, threads=1)
        assert model.info.device == "GPU: RTX of paper"
        context = model.open(64)
        assert len(context.forward([1, 2, 3], 1)) == 1
        GPU.fault = LOST
        assert lost(context) == f"CUDA error: {LOST}"
        passes, GPU.fault = GPU.passes, ""
        seen: list[str] = []
        thread = Thread(target=lambda: seen.append(lost(context)))
        thread.start()
        thread.join()
        assert seen == [lost(context)] == [f"CUDA error: {LOST}"]
        with pytest.raises(DeviceLostError):
            context.save()
        with pytest.raises(DeviceLostError):
            model.open(64)
        assert GPU.passes == passes, "what was there is not run again"
        model.close()
        assert not library.can_offload()
        assert library.gpus() == ()
        with pytest.raises(UsageError, match="cannot be used"):
            llamacpp.load(path, gpu_layers=4)
        with vocabulary(path) as known:
            assert known.tokenizer.encode("a", special=False)
        assert lost_nothing(processor)
        with closing(llamacpp.load(path, threads=1)) as again:
            assert again.info.device.startswith("CPU")
            assert (again.open(128).forward(list(range(5, 70)), 1) == expected).all()
    assert GPU.passes == passes


def lost_nothing(context: Context) -> bool:
    return len(context.forward([3], 1)) == 1


def refuse(path: Path) -> None:
    """What a driver says of memory and of kernels, and a status in place of an abort."""
    fake_gpu.install()
    GPU.largest = 1000
    with pytest.raises(OutOfMemoryError, match="unable to allocate FAKE0 buffer"):
        llamacpp.load(path, threads=1)
    GPU.largest = fake_gpu.GB
    with closing(llamacpp.load(path, threads=1)) as model:
        context, other = model.open(64), model.open(64)
        GPU.largest = 10
        with pytest.raises(OutOfMemoryError):
            model.open(64)
        assert lost_nothing(context)
        GPU.fault = "failed"
        assert lost(context) == "error: Insufficient Memory"
        assert lost(other) == gpu_loss.why()


def without_kernels(path: Path) -> None:
    fake_gpu.install()
    model = llamacpp.load(path, threads=1)
    GPU.fault = NO_KERNELS
    assert lost(model.open(64)) == (
        f"CUDA error: {NO_KERNELS}; `specchat build cuda` makes a build for this card"
    )


@pytest.mark.slow
@pytest.mark.parametrize("test", [lose, refuse, without_kernels])
def test_a_gpu(tiny: Tiny, test: Callable[[Path], None]) -> None:
    fake_gpu.in_a_process(test, tiny("llama"))
