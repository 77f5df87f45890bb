"""Every kind of file that a campaign can damage, by its name."""

from collections.abc import Callable

from scripts.fuzzing.kind import Kind
from scripts.fuzzing.model_files import Engine, Gguf, MlxConfig, Safetensors

KINDS: dict[str, Callable[[], Kind]] = {
    kind.name: kind for kind in (Gguf, Safetensors, MlxConfig, Engine)
}
