"""Values of settings that other parts of the app name too."""

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377
"""Neither llama-server's 8080, nor Ollama's 11434, LM Studio's 1234 or vLLM's 8000."""

MOST_UNLOAD_AFTER = 525_600.0
"""Minutes."""

MOST_PORT = 65_535

KEY_VARIABLE = "SPECCHAT_API_KEY"
"""Variable in which clients find the server's key; it is none of our own."""


DEFAULT_PROMPT_MEMORY = 2048
"""Megabytes for copies of prompt caches: 14,000 tokens of a 4B model. A guess; not measured."""

MOST_PROMPT_MEMORY = 1 << 20
"""Largest value of the setting: a terabyte."""


AHEAD_AUTO, AHEAD_ON, AHEAD_OFF = "auto", "on", "off"
"""When the model reads ahead: while the machine has power and time to spare, always, or never."""

SWITCHED_OFF = "switched off"
"""Why nothing is read where the user wants that."""

AHEAD_CHOICES = (AHEAD_AUTO, AHEAD_ON, AHEAD_OFF)

DEFAULT_AHEAD_WASTE = 60.0
"""Processor seconds a message that may be read in vain: about two prompts of 2,000 tokens, as a
1.1B model reads them on two processors (36 s each). A guess; not measured."""

MOST_AHEAD_WASTE = 3600.0
"""Largest value of the setting: an hour."""
