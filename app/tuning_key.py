"""By what the results of tuning are told apart."""

import hashlib

from backends.base import ModelInfo
from models.fingerprint import fingerprint


def tuning_key(info: ModelInfo) -> str:
    """Of a model as an engine runs it on a device with so many threads.

    Raises:
        OSError: its files cannot be read.
    """
    place = f"{info.engine} {info.device} {info.threads}"
    digest = hashlib.sha256(place.encode()).hexdigest()[:16]
    return f"{fingerprint(info.path, info.variant)}-{digest}"
