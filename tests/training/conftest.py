"""Both libraries that train."""

import pytest

from training.arrays import Arrays


@pytest.fixture(params=["mlx", "torch"])
def arrays(request: pytest.FixtureRequest) -> Arrays:
    return opened(request.param)


def opened(name: str) -> Arrays:
    if name == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
        from training.mlx_arrays import MlxArrays

        return MlxArrays()
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)  # of sizes so small, more only wait for each other
    from training.torch_arrays import TorchArrays

    return TorchArrays("float32")
