"""Heads in folders of safetensors, as they are published: read without an engine or trust."""
