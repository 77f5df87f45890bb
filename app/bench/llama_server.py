"""llama-server beside our methods: a process of its own that answers the same tokens."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from backends.base import ModelError, ModelInfo
from decoding.sampling.settings import SamplingSettings

WAYS = {"plain": (), "ngram-simple": ("--spec-type", "ngram-simple")}
"""How it decodes, by its own names, and the options for that."""

_KEEPER = """
import subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (sys.stdin.read(), child.kill()), daemon=True).start()
sys.exit(child.wait())
"""
"""Runs a program until its own input ends, as it does however a bench is ended."""

_START_SECONDS = 600.0
"""For a large model on a slow disk; a guess on the generous side."""


def program() -> str | None:
    return shutil.which("llama-server")


@contextmanager
def llama_server(info: ModelInfo, n_ctx: int, options: Sequence[str]) -> Generator[str]:
    """Start it with a model that llama.cpp runs here; yields its address.

    Raises:
        ModelError: it does not start.
    """
    port = free_port()
    threads, is_on_gpu = str(info.threads), info.device.startswith("GPU")
    layers = 0 if not is_on_gpu else 999 if info.gpu_layers is None else info.gpu_layers
    command = [program() or "", "-m", str(info.path), "-c", str(n_ctx), "-np", "1", "-t", threads]
    command += ["-ngl", str(layers), "--host", "127.0.0.1", "--port", str(port), *options]
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _KEEPER, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is the bench's
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise ModelError("llama-server does not start", str(error)) from error
        try:
            address = f"http://127.0.0.1:{port}"
            if not becomes_ready(process, address):
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()
                raise ModelError("llama-server does not start", said[-1] if said else "")
            yield address
        finally:
            process.communicate()  # ends its input


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def becomes_ready(process: subprocess.Popen[Any], address: str) -> bool:
    """Wait until a program that was started serves; False if it ended, or took too long."""
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError):  # it does not listen yet, or is still loading
            _DIRECT.open(f"{address}/health", timeout=5).close()
            return True
        time.sleep(0.1)
    return False


_DIRECT = build_opener(ProxyHandler({}))


def answer(
    address: str,
    prompt: Sequence[int],
    settings: SamplingSettings,
    max_tokens: int,
    *,
    goes_on: bool,
) -> dict[str, Any]:
    """Its answer with the `tokens` and its own `timings`, in milliseconds.

    goes_on: whether what it kept of the prompt before is used.

    Raises:
        ModelError: it gives none.
    """
    body = {
        "prompt": list(prompt),
        "n_predict": max_tokens,
        "temperature": settings.temperature,
        "top_k": settings.top_k,
        "top_p": settings.top_p,
        "min_p": settings.min_p,
        "seed": settings.seed,
        "return_tokens": True,
        "cache_prompt": goes_on,
    }
    request = Request(f"{address}/completion", json.dumps(body).encode())
    try:
        with _DIRECT.open(request) as response:
            return json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise ModelError("llama-server failed", str(error)) from error
