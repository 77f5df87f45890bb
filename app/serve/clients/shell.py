"""Lines for the user's shell: variables, small files and commands."""

import os
import shlex
from typing import Protocol


class Shell(Protocol):
    """Writes lines that a kind of shell understands; each ends with a line break."""

    def comment(self, text: str) -> str:
        """A line that does nothing."""
        ...

    def variable(self, name: str, value: str) -> str:
        """Set a variable for all programs that are started then."""
        ...

    def copied(self, name: str, source: str) -> str:
        """Set a variable to what another holds."""
        ...

    def file(self, path: str, text: str) -> str:
        """Write a file of whole lines."""
        ...

    def command(self, *words: str) -> str:
        """Run a program."""
        ...


class Posix:
    """Shells of Linux and macOS."""

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def variable(self, name: str, value: str) -> str:
        return f"export {name}={shlex.quote(value)}\n"

    def copied(self, name: str, source: str) -> str:
        return f'export {name}="${{{source}:?set it to the key of the server}}"\n'

    def file(self, path: str, text: str) -> str:
        return f"cat > {shlex.quote(path)} <<'END'\n{text}END\n"

    def command(self, *words: str) -> str:
        return f"{shlex.join(words)}\n"


class PowerShell:
    """The shell of Windows."""

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def variable(self, name: str, value: str) -> str:
        return f"$env:{name} = {_quoted(value)}\n"

    def copied(self, name: str, source: str) -> str:
        return f"$env:{name} = $env:{source}\n"

    def file(self, path: str, text: str) -> str:
        return f"@'\n{text}'@ | Set-Content {_quoted(path)}\n"

    def command(self, *words: str) -> str:
        return " ".join([words[0], *map(_quoted, words[1:])]) + "\n"


def usual_shell() -> Shell:
    """The shell that comes with this system."""
    return PowerShell() if os.name == "nt" else Posix()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
