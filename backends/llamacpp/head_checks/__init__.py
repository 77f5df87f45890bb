"""Checks of draft heads against the models they are to draft for, from the headers alone.

llama.cpp aborts on some mismatches, and drafts from wrong numbers on others without a word.
"""
