"""The llama.cpp backend, on llama-cpp-python's low-level API."""

from backends.llamacpp import waiting  # isort: skip - settled before the engine is loaded
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.model import LlamaModel, load

__all__ = ["LlamaContext", "LlamaModel", "load", "waiting"]
