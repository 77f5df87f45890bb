"""Values of the setting of the memory for prompts."""

DEFAULT_PROMPT_MEMORY = 2048
"""Megabytes for copies of prompt caches: 14,000 tokens of a 4B model. A guess; not measured."""

MOST_PROMPT_MEMORY = 1 << 20
"""Largest value of the setting: a terabyte."""
