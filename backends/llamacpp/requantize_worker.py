"""Child process of requantize, run by path with SOURCE TARGET QUANTIZATION LAYERS.

Prints `progress DONE TOTAL` lines, and `failed REASON` before it exits with status 1.
"""

import contextlib
import ctypes
import os
import re
import sys
import threading

from llama_cpp import llama_cpp as api

_COUNTER = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]")
_errors: list[str] = []


@api.llama_log_callback
def _follow_log(level: int, text: bytes | None, _user_data: object) -> None:
    if not text:
        return
    counter = _COUNTER.match(text.lstrip())
    if counter:
        print("progress", int(counter[1]), int(counter[2]), flush=True)
    elif level in (3, 4):
        _errors.append(text.decode("utf-8", errors="replace").strip())


def _end_with_parent(target: str) -> None:
    """Exit when standard input closes, as it does when the parent ends."""
    os.read(sys.stdin.fileno(), 1)
    with contextlib.suppress(OSError):
        os.unlink(target)
    os._exit(1)


def main() -> int:
    """Requantize as the arguments say; the exit status."""
    source, target = map(os.path.abspath, sys.argv[1:3])
    quantization, layers = sys.argv[3:]
    threading.Thread(target=_end_with_parent, args=(target,), daemon=True).start()
    api.llama_log_set(_follow_log, ctypes.c_void_p(0))
    api.llama_backend_init()
    parameters = api.llama_model_quantize_default_params()
    parameters.allow_requantize = True
    if quantization:
        parameters.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{quantization.upper()}")
    else:
        parameters.only_copy = True
    skipped = [int(layer) for layer in layers.split(",") if layer]
    if skipped:
        layers_to_prune = (ctypes.c_int32 * (len(skipped) + 1))(*skipped, -1)
        parameters.prune_layers = ctypes.cast(layers_to_prune, ctypes.POINTER(ctypes.c_int32))
    # llama.cpp opens what it writes, unlike what it reads, by std::ofstream: on Windows that takes
    # a name in the code page, which lacks most letters. The name alone is of ASCII.
    folder, name = os.path.split(target)
    os.chdir(folder)
    status = api.llama_model_quantize(
        os.fsencode(source), os.fsencode(name), ctypes.pointer(parameters)
    )
    if status != 0:
        reason = _errors[-1] if _errors else f"llama.cpp code {status}"
        if "iostream error" in reason:
            reason = "its file could not be written in full"
        print("failed", reason.splitlines()[-1], flush=True)
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
