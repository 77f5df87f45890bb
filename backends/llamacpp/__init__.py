"""The llama.cpp backend, on llama-cpp-python's low-level API."""

from backends.llamacpp import openmp_env  # isort: skip - set before the engine is loaded
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.loading import load
from backends.llamacpp.model import LlamaModel

__all__ = ["LlamaContext", "LlamaModel", "load", "openmp_env"]
