"""The llama.cpp backend, on llama-cpp-python's low-level API."""

from backends.llamacpp.model import LlamaModel, load

__all__ = ["LlamaModel", "load"]
