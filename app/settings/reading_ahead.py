"""Values of the settings of reading ahead."""

AHEAD_AUTO, AHEAD_ON, AHEAD_OFF = "auto", "on", "off"
"""When the model reads ahead: while the machine has power and time to spare, always, or never."""

AHEAD_CHOICES = (AHEAD_AUTO, AHEAD_ON, AHEAD_OFF)

DEFAULT_AHEAD_WASTE = 10.0
"""Processor seconds of each message that may be read for nothing."""

MOST_AHEAD_WASTE = 3600.0
"""Largest value of the setting: an hour."""
