"""Loading files with llama.cpp: checks before it, and how weights are mapped."""
