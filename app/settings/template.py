"""Template of the settings file: every key, explained and commented out."""

import tomlkit

from app.settings.catalogue import KEYS, Key

_HEAD = """\
# Settings of specchat. Remove the "# " before a key to set it.
# Order of precedence: command line, SPECCHAT_<KEY> environment variables, this file.
"""
_TABLES = """\
# Key bindings: the name of an action, and one key or several separated by commas. F1 lists all.
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
    return f"{key.name} = {tomlkit.item(value).as_string()}"


def template() -> str:
    """The whole file, with every key commented out."""
    blocks = [f"# {key.comment}\n# {line(key, key.default)}\n" for key in KEYS]
    return "\n".join([_HEAD, *blocks, _TABLES])
