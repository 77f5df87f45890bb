"""Heads that draft for a model from its hidden states, run by llama.cpp."""
