"""Passes of llama.cpp: stopping one before its end."""
