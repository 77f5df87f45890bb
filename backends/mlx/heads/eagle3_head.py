"""EAGLE-3 heads: Li et al. 2025 (arXiv 2503.01840), section 3."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false

from backends.files.head_folders.eagle3_layout import Eagle3Layout
from backends.files.head_folders.head_folder import HeadFolder
from backends.mlx.heads.borrowed_layers import output_bytes
from backends.mlx.heads.cache_room import require_room
from backends.mlx.heads.chain_context import MlxChainContext
from backends.mlx.heads.eagle3_layers import Eagle3Layers
from backends.mlx.heads.head_weights import dtype_of, with_weights
from backends.mlx.heads.loaded_head import LoadedHead
from backends.mlx.heads.tapped_states import tapped_states
from backends.mlx.heads.taps import remove_states
from backends.mlx.mlx_context import MlxContext
from backends.mlx.mlx_model import MlxModel


def load_eagle3(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    """Load an EAGLE-3 head from a checked folder.

    Raises:
        DraftUnavailableError: it borrows layers that the model does not have.
        OutOfMemoryError: the weights are larger than free memory.
        ValueError: the weights do not fit together, in words.
    """
    assert target.module is not None, "the model is closed"
    layout = folder.layout
    assert isinstance(layout, Eagle3Layout), "it was checked"
    layers = with_weights(Eagle3Layers(layout, folder.drafted, target.module), folder)
    taps = layout.taps_in(target.folder.count("num_hidden_layers"))
    return LoadedHead(
        layers,
        lambda context: open_eagle3(layers, layout, taps, context),
        shared_bytes=0 if layout.has_output else output_bytes(target.module),
    )


def open_eagle3(
    layers: Eagle3Layers, layout: Eagle3Layout, taps: tuple[int, ...], context: MlxContext
) -> MlxChainContext:
    """A context of a head that reads the inputs of these layers, beside one of its model.

    It runs a token at the token's own position, where the paper's code has the one before:
    positions are rotary, so that only their distances count.

    Raises:
        OutOfMemoryError: its cache does not fit in free memory.
        DraftUnavailableError: the model's layers cannot be read.
    """
    per_token = layout.attention.numbers_per_token * dtype_of(layers).size
    require_room(context.n_ctx, per_token)
    states = tapped_states(context, taps, layout.target_width)
    return MlxChainContext(
        layers,
        states,
        n_vocab=layout.n_vocab,
        n_ctx=context.n_ctx,
        n_chunk=context.n_chunk,
        kv_bytes_per_token=per_token,
        on_close=lambda: remove_states(context, states),
        skips_first=True,
    )
