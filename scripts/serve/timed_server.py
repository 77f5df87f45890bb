"""`specchat` that notes the time of each reply's first token.

Run: python -m scripts.serve.timed_server FILE COMMAND …

A line of FILE is the time.perf_counter() at which the engine had a first token. Where that clock is
the system's, as on Linux, it can be compared with those of other programs.
"""

import sys

from app.cli.entry import main as specchat
from app.engine.answer import Answer, Stage
from decoding.events import Event, Step


def main() -> None:
    """Run the command that follows the file."""
    path = sys.argv.pop(1)
    follow = Answer.on_event

    def timed(self: Answer, event: Event) -> None:
        if isinstance(event, Step) and self.stage is not Stage.ANSWERING:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{event.at!r}\n")
        follow(self, event)

    Answer.on_event = timed
    specchat()


if __name__ == "__main__":
    main()
