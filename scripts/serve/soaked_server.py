"""`specchat` that tells what its process holds.

Run: python -m scripts.serve.soaked_server COMMAND …

For each line on standard input it writes what the process holds as a line of JSON.
"""

import json
import sys
from dataclasses import asdict
from threading import Thread

from scripts.campaigns.soak import Held
from specchat import main as specchat


def main() -> None:
    """Run the command, and tell what is held whenever that is asked."""
    Thread(target=_tell, daemon=True).start()
    specchat()


def _tell() -> None:
    for _ in sys.stdin:
        print(json.dumps(asdict(Held.now())), flush=True)


if __name__ == "__main__":
    main()
