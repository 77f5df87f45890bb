"""What `specchat` and `python -m specchat` start.

The project in which someone works may have an `app` or `models` of its own, and be on the path of
modules (`PYTHONPATH=.`): what lies beside this file comes first. Almost nothing is imported before
Ctrl-C is handled.
"""

import signal
import sys
from pathlib import Path


def main() -> None:
    """Load and run the command line; an interrupt ends it quietly at any time."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    try:
        from app.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Another Ctrl-C would replace the exit code while the interpreter ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
