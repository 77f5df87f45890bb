"""Heads in folders of safetensors, as they are published: read without an engine or trust.

What finds a layout raises a ValueError, in words, where a part is missing or is not known.
"""
