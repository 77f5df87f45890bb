"""DFlash heads (arXiv 2602.06036), DFlash2's and DSpark's included."""

from backends.files.head_folders.block_layout import BlockLayout
from backends.files.head_folders.head_folder import HeadFolder
from backends.heads.block_head import BlockHead
from backends.mlx.heads.blocks.block_drafter import BlockDrafter
from backends.mlx.heads.blocks.block_passes import MlxBlockPasses
from backends.mlx.heads.borrowed_layers import output_bytes
from backends.mlx.heads.cache_room import require_room
from backends.mlx.heads.head_weights import dtype_of, with_weights
from backends.mlx.heads.loaded_head import LoadedHead
from backends.mlx.heads.tapped_states import tapped_states
from backends.mlx.heads.taps import remove_states
from backends.mlx.mlx_context import MlxContext
from backends.mlx.mlx_model import MlxModel


def load_dflash(folder: HeadFolder, target: MlxModel) -> LoadedHead:
    """Load a head of blocks from a checked folder.

    Raises:
        DraftUnavailableError: it borrows layers that the model does not have.
        OutOfMemoryError: the weights are larger than free memory.
        ValueError: the weights do not fit together, in words.
    """
    assert target.module is not None, "the model is closed"
    layout = folder.layout
    assert isinstance(layout, BlockLayout), "it was checked"
    drafter = with_weights(BlockDrafter(layout, folder.drafted, target.module), folder)
    has_output = layout.has_output or layout.ties_output
    return LoadedHead(
        drafter,
        lambda context: open_dflash(drafter, layout, context),
        shared_bytes=0 if has_output else output_bytes(target.module),
    )


def open_dflash(drafter: BlockDrafter, layout: BlockLayout, context: MlxContext) -> BlockHead:
    """A context of a head of blocks beside one of its model.

    Raises:
        OutOfMemoryError: its cache does not fit in free memory.
        DraftUnavailableError: the model's layers cannot be read.
    """
    per_token = len(layout.layers) * layout.attention.numbers_per_token * dtype_of(drafter).size
    require_room(context.n_ctx, per_token)
    states = tapped_states(context, layout.taps, layout.target_width)
    return BlockHead(
        MlxBlockPasses(drafter, layout),
        states,
        longest=layout.longest,
        n_vocab=layout.n_vocab,
        n_ctx=context.n_ctx,
        n_chunk=context.n_chunk,
        kv_bytes_per_token=per_token,
        on_close=lambda: remove_states(context, states),
    )
