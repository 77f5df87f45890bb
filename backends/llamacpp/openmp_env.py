"""How the engine's threads wait for each other. Imported before llama.cpp is loaded.

GNU OpenMP lets a thread spin for milliseconds at each of the hundreds of barriers of a pass. On a
machine that runs anything else it then spins while the thread it waits for is not running, and
decoding can fall to a hundredth. A short spin, then sleep, costs nothing measurable when alone.
"""

import os

_SPINS = "2000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
