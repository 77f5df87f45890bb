"""The llama.cpp backend, on llama-cpp-python's low-level API."""

from backends.llamacpp import openmp_env  # isort: skip - set before the engine is loaded
from backends.llamacpp.llama_context import LlamaContext
from backends.llamacpp.llama_model import LlamaModel
from backends.llamacpp.loading.load_model import load

__all__ = ["LlamaContext", "LlamaModel", "load", "openmp_env"]
