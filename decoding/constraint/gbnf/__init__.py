"""Grammars of llama.cpp in the form that the matcher reads, with the same language."""
