"""The settings file for a person to begin with: every key, explained and commented out."""

import tomlkit

from app.settings.catalogue import KEYS, Key

_HEAD = """\
# Settings of specchat. A line counts once the "# " before its key is taken away.
# What is typed wins over a variable (SPECCHAT_ and the key in capitals), that over this file.
"""
_TABLES = """\
# Keys of the app: the name of an action, and one key or several with commas. F1 lists all.
# [keys]
# new = "ctrl+n"
# chats = "ctrl+o,f10"

# A preset is chosen with /preset NAME or in the settings (F8).
# [presets.exact]
# system = "Answer exactly and in one sentence."
# temperature = 0.0
# max_tokens = 200
"""


def line(key: Key, value: object) -> str:
    """A key with its value, as it stands in the file."""
    return f"{key.name} = {tomlkit.item(value).as_string()}"


def template() -> str:
    """The whole file."""
    blocks = [f"# {key.comment}\n# {line(key, key.default)}\n" for key in KEYS]
    return "\n".join([_HEAD, *blocks, _TABLES])
