"""Drafters that are built on others which draw token by token with the target's vocabulary."""

from backends.base import Model
from decoding.draft import Drafter
from decoding.drafters.model.block_draft import BlockDraft


def why_no_line(drafter: Drafter, target: Model) -> str:
    """Why a drafter model is none of these, in words."""
    if isinstance(drafter, BlockDraft):
        return f"{drafter.name} drafts whole blocks"
    return f"{drafter.name} has another vocabulary than {target.info.name}"
