"""Loading Gemma 4's assistants, which open beside a context of their model."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from backends.base import DraftUnavailableError, ModelError
from backends.files.head_folders.head_folder import HeadFolder
from backends.files.mlx_folder import REMEDY
from backends.mlx.heads.assistant.assistant_context import AssistantContext
from backends.mlx.heads.assistant.assistant_module import AssistantModule
from backends.mlx.heads.assistant.assistant_settings import read_assistant
from backends.mlx.heads.assistant.assisted_model import AssistedModel, assisted_model
from backends.mlx.heads.assistant.clustered_output import ClusteredOutput
from backends.mlx.heads.loaded_head import LoadedHead
from backends.mlx.heads.prediction.prediction_weights import read_weights
from backends.mlx.heads.prediction.stored_quantization import quantize_as_stored
from backends.mlx.heads.taps import add_final_states, remove_states
from backends.mlx.loading.folder_checks import require_memory
from backends.mlx.mlx_context import MlxContext
from backends.mlx.mlx_model import MlxModel

_OUTPUT = "lm_head."
"""Beginning of the names of an output layer of its own, a copy of the embedding if that is it."""


def load_assistant(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    """Load the assistant of a folder for a model.

    Raises:
        ModelError: it is not the assistant of this model, or damaged.
        OutOfMemoryError: the weights are larger than free memory.
        ValueError: they are not those of the settings, in words.
    """
    name = folder.path.name
    settings = read_assistant(folder.config)
    module = AssistantModule(settings)
    assisted = assisted_model(name, settings, module, target)
    _fill(module, folder, is_tied=settings.is_tied)
    module.set_dtype(assisted.dtype)  # of the keys it reads: others would be converted in each pass
    if settings.clusters:
        _settle(name, module.masked_embedding)
    mx.eval(module.parameters())
    return LoadedHead(module, lambda context: _open(module, assisted, context))


def _fill(module: AssistantModule, folder: HeadFolder, *, is_tied: bool) -> None:
    """Give the layers their weights, quantized as they are stored; all is lazy."""
    stored = {name: name for name in folder.weights if not (is_tied and name.startswith(_OUTPUT))}
    require_memory(folder.path, sum(folder.weights[name].bytes for name in stored))
    weights = read_weights(stored, folder.files)
    quantize_as_stored(module, weights)
    module.load_weights(list(weights.items()))


def _settle(name: str, output: ClusteredOutput) -> None:
    output.token_ordering = output.token_ordering.astype(mx.int32)
    if not output.is_sound:
        why = "token_ordering does not name each token once"
        raise ModelError(f"the weights of {name} are damaged", why, REMEDY)


def _open(
    module: AssistantModule, assisted: AssistedModel, context: MlxContext
) -> AssistantContext:
    caches = context.settled_caches()
    if not all(isinstance(caches[layer.cache], KVCache) for layer in assisted.layers.values()):
        why = "its model does not keep the keys and values of every token"
        raise DraftUnavailableError("the assistant cannot draft", why)
    states = add_final_states(context)
    return AssistantContext(
        module, assisted, context, states, on_close=lambda: remove_states(context, states)
    )
