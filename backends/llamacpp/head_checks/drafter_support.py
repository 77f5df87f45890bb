"""Which architectures llama.cpp can draft for with trained drafters: it aborts on others."""

from backends.files.gguf_drafter import TrainedDrafter, TrainedKind
from backends.llamacpp.head_checks.assistant_check import ASSISTED
from backends.llamacpp.head_checks.prediction_check import PREDICTING
from backends.llamacpp.head_checks.tapped_layers import TAPPED


def unsupported(drafter: TrainedDrafter, architecture: str) -> str:
    """Why llama.cpp cannot draft for an architecture with a drafter; empty if it can."""
    match drafter.kind:
        case TrainedKind.ASSISTANT:
            can, what = architecture == ASSISTED, "run an assistant beside"
        case TrainedKind.NEXT_TOKEN_LAYERS:
            can, what = architecture in PREDICTING, "run next-token layers of"
        case _:
            can, what = architecture in TAPPED, "hand out what the layers read of"
    return "" if can else f"this version of llama.cpp does not {what} {architecture}"
