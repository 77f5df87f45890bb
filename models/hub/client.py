"""Importing huggingface_hub: on first use, as it takes half a second, and without its output."""

import logging
import os
from types import ModuleType

_QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
}


def hub_client() -> ModuleType:
    """Import huggingface_hub, which reads these variables when first imported."""
    os.environ.update(_QUIET)
    import huggingface_hub

    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    return huggingface_hub
