"""Settings of a model as MLX runs it: of a folder, or of a GGUF file."""

from pathlib import Path

from backends.files.mlx_folder import MlxFolder, read_mlx_folder
from backends.files.mlx_gguf import read_settings


def mlx_settings(path: Path) -> MlxFolder:
    """Settings and size of a model.

    Raises:
        ModelError: it is missing, damaged, or not for MLX.
    """
    return read_mlx_folder(path) if path.is_dir() else read_settings(path)
