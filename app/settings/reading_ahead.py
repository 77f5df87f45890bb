"""Values of the settings of reading ahead."""

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
