"""A head loaded by MLX: layers that draft for one model from its hidden states."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable
from pathlib import Path
from traceback import clear_frames
from weakref import WeakValueDictionary

import mlx.core as mx
from mlx_lm.utils import get_total_parameters

from backends.base import (
    Context,
    DraftUnavailableError,
    SpecchatError,
)
from backends.files.gguf_drafter import TrainedKind
from backends.files.head_folders.head_folder import HeadFolder, checked_head_folder
from backends.heads.head import LoadedLayers, head_info
from backends.mlx.context import MlxContext
from backends.mlx.folder_checks import load_error
from backends.mlx.heads.assistant import load_assistant
from backends.mlx.heads.blocks import load_dflash
from backends.mlx.heads.eagle3 import load_eagle3
from backends.mlx.heads.prediction import load_prediction
from backends.mlx.heads.weights import LoadedHead
from backends.mlx.model import MlxModel, weights_of

Load = Callable[[HeadFolder, MlxModel], LoadedHead]

_LOAD: dict[TrainedKind, Load] = {
    TrainedKind.ASSISTANT: load_assistant,
    TrainedKind.DFLASH: load_dflash,
    TrainedKind.DSPARK: load_dflash,
    TrainedKind.EAGLE3: load_eagle3,
    TrainedKind.NEXT_TOKEN_LAYERS: load_prediction,
}


def load_head(path: Path, target: MlxModel, context: MlxContext) -> "MlxHead":
    """Load a head for a model.

    path: the head's folder, or the model's own. context: of the model, which the head reads.

    Raises:
        ModelError: a file is damaged, or head and model do not belong together.
        OutOfMemoryError: the weights are larger than free memory.
        DraftUnavailableError: no such head can read the model.
    """
    folder = checked_head_folder(path, target.folder)
    try:
        return MlxHead(folder, _LOAD[folder.drafter.kind](folder, target), target, context)
    except DraftUnavailableError:
        raise
    except Exception as error:  # code of an architecture may raise anything
        refusal = load_error(path, error)
        clear_frames(error.__traceback__)  # they hold the arrays loaded so far
    mx.clear_cache()
    raise refusal


class MlxHead(LoadedLayers):
    """Layers run by MLX."""

    def __init__(
        self, folder: HeadFolder, loaded: LoadedHead, target: MlxModel, context: MlxContext
    ) -> None:
        self._loaded: LoadedHead | None = loaded
        drafter = folder.drafter
        shared_bytes = loaded.shared_bytes if drafter.is_alone else 0
        info = head_info(
            target.info,
            path=folder.head.path,
            name=folder.head.path.name,
            architecture=str(folder.head.settings.values.get("model_type", "unknown")),
            quantization="head",
            parameters=get_total_parameters(loaded.weights),
            weight_bytes=sum(array.nbytes for _, array in weights_of(loaded.weights)),
            bytes_read_per_token=drafter.draw_bytes + shared_bytes,
            n_layers=drafter.layers,
            variant=drafter.kind.variant,
        )
        super().__init__(target, context, info)
        self._contexts = WeakValueDictionary()  # who drops one has closed it

    def open_beside(self, context: Context) -> Context:
        """A context that drafts for another one of the model.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
            DraftUnavailableError: it cannot read what the model's layers are given.
            ModelError: code of the model's architecture failed.
        """
        assert self._loaded is not None, "the head is closed"
        assert isinstance(context, MlxContext)
        try:
            opened = self._loaded.open(context)
        except SpecchatError:
            raise
        except Exception as error:  # finding out shapes runs the model's layers, as views
            raise load_error(self.info.path, error) from error
        self._contexts[id(opened)] = opened
        context.close_with(opened)
        return opened

    def close(self) -> None:
        super().close()
        if self._loaded is not None:
            self._loaded = None
            mx.clear_cache()
