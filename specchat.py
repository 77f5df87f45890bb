"""What `specchat` and `python -m specchat` start.

The project in which someone works may have an `app` or `models` of its own, and be on the path of
modules (`PYTHONPATH=.`): what lies beside this file comes first.
"""

import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from app.cli.entry import main as run

    run()


if __name__ == "__main__":
    main()
