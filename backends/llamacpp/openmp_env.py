"""Set before llama.cpp is loaded: which build of it, and how the threads of OpenMP wait.

With GNU OpenMP a thread spins for milliseconds at each of the hundreds of barriers of a pass. On a
busy machine it then spins while the thread it waits for is not running, and decoding can drop to a
hundredth of its speed. Spinning briefly and then sleeping costs nothing measurable on an idle one.
"""

import os

from backends.hardware.nvidia import use_cuda_libraries

_SPINS = "2000"

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)

use_cuda_libraries()
