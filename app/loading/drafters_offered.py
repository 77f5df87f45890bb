"""What the catalogue names to draft for a model, in words."""

from collections.abc import Sequence

from backends.engines.backend_names import LLAMACPP, MLX
from models.catalogue import CatalogueDrafter


def drafters_in_short(drafters: Sequence[CatalogueDrafter]) -> str:
    """Short names for a column: "drafters: 0.8b, mtp; with MLX: dspark"; may be empty."""
    used, with_mlx = _apart(drafters)
    words = [f"drafters: {', '.join(used)}"] if used else []
    words += [f"with MLX: {', '.join(with_mlx)}"] if with_mlx else []
    return "; ".join(words)


def drafters_in_sentences(drafters: Sequence[CatalogueDrafter]) -> str:
    """What drafts for a model, and what others measured with one that was trained for it."""
    used, with_mlx = _apart(drafters)
    sentences = [f"Drafts with {', '.join(used)}."] if used else []
    if with_mlx:
        sentences.append(f"With MLX: {', '.join(with_mlx)}.")
    told = next((one for one in drafters if one.published), None)
    if told is not None:
        sentences.append(f"Published for {told.alias}, × plain: {told.published}.")
    return " ".join(sentences)


def _apart(drafters: Sequence[CatalogueDrafter]) -> tuple[list[str], list[str]]:
    """Names of the drafters of a file for llama.cpp, and of those that are for MLX alone."""
    used = [one.alias for one in drafters if one.runs_on(LLAMACPP)]
    return used, [one.alias for one in drafters if one.alias not in used and one.runs_on(MLX)]
