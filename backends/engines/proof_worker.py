"""Child of ProofProcess: runs models for one token each, and may crash.

Reads one JSON request per line. Writes a line when the engine has started, and one with the answer:
{} if the model ran, otherwise the error.
"""

import contextlib
import faulthandler
import json
import os
import sys
from base64 import b64decode
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from backends.base import CacheType, Model, SpecchatError
from backends.base.images import image_of
from backends.engines.engine_facts import check_gpu_layers
from backends.engines.model_loading import load, load_head, open_embedder, own_head, vocabulary
from backends.files.gguf_header import require_distinct_tokens

_CONTEXT = 256
_TEXT = "A b1\n\té漢🙂 "
"""Letters, digits, spaces and characters that few vocabularies have a token for."""

_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAABgAAAAYCAAAAADFHGIkAAAAT0lEQVR42nXBEQKAMABA0X+cMAzDMAyHYRiGw+Ew"
    "HIZhGIbhjrIT/PfoBL1gEIyCSTALFkEQrIJNsAsOQRQkQRacgiK4BLfgEbyCT/ALqmjjQSkQWo+cogAAAABJRU5E"
    "rkJggg=="
)
"""A PNG of 24 by 24 pixels."""

_PROMPT_TOKENS = 2
"""Engines run a pass over several tokens through other code than one over a single token."""

_GRACE_SECONDS = 5.0
"""An orphaned child ends itself this long after the limit at which its parent would kill it."""


def main() -> None:
    """Answer requests until standard input closes, as it does when the parent ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of engines is no answer
    _die_quietly()
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        with contextlib.suppress(SpecchatError):  # loading a model reports it too
            check_gpu_layers(request["backend"], None)
        answers.write("started\n")
        answers.flush()
        # Its thread works without the interpreter lock, which native code may never release.
        faulthandler.dump_traceback_later(request["seconds"] + _GRACE_SECONDS, exit=True)
        answer = _answer(request)
        faulthandler.cancel_dump_traceback_later()
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


def _receive(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _die_quietly() -> None:
    """Write no core file and open no window when an engine aborts the process."""
    if sys.platform == "win32":
        import ctypes

        no_critical_errors, no_crash_window = 0x1, 0x2
        ctypes.windll.kernel32.SetErrorMode(no_critical_errors | no_crash_window)
        return
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(request: dict[str, Any]) -> dict[str, str]:
    path = Path(request["path"])
    try:
        if path.is_file():
            require_distinct_tokens(path)
        if request["vocabulary_only"]:
            with vocabulary(path) as read:
                read.tokenizer.encode(_TEXT, special=False)
            return {}
        settings = (request[name] for name in ("threads", "gpu_layers", "backend"))
        options = {name: request[name] for name in ("experts", "blank")}
        options["lock_bytes"] = 0 if request["streams"] else None
        options["cache_type"] = CacheType(request["cache_type"]) if request["cache_type"] else None
        projector = Path(request["projector"]) if request["projector"] else None
        with closing(load(path, *settings, **options, projector=projector)) as model:
            if projector:
                _read_image(model)
            if request["embeds"]:
                with closing(open_embedder(model, _CONTEXT)) as embedder:
                    embedder.embed([_TEXT, "", _TEXT])
                return {}
            _generate_token(model, Path(request["head"]) if request["head"] else None)
    except SpecchatError as error:
        kind = type(error).__name__
        return {"kind": kind, "what": error.what, "why": error.why, "remedy": error.remedy}
    except Exception as error:  # code of an architecture may raise anything
        why = f"{type(error).__name__}: {error}"[:300]
        return {"kind": "ModelError", "what": f"cannot run {path}", "why": why, "remedy": ""}
    return {}


def _read_image(model: Model) -> None:
    tokens = model.tokenizer.image_tokens(image_of(b64decode(_PICTURE), "the image"))
    with closing(model.open(min(len(tokens), model.info.context_limit))) as context:
        for at in range(0, context.n_ctx, context.n_chunk):
            context.forward(tokens[at : at + context.n_chunk][: context.n_ctx - at], 0)


def _generate_token(model: Model, head: Path | None) -> None:
    tokenizer = model.tokenizer
    tokens = [*tokenizer.encode(_TEXT, special=False), *tokenizer.encode(_TEXT, special=True)]
    tokens = tokens[:_PROMPT_TOKENS] or [tokenizer.bos or 0]
    n_ctx = min(_CONTEXT, model.info.context_limit)
    with closing(model.open(n_ctx)) as context, ExitStack() as stack:
        loaded = load_head(head, model, context) if head else own_head(model, context)
        drafting = stack.enter_context(closing(loaded)).open(n_ctx) if loaded else None
        first = tokens[: max(n_ctx - 1, 1)]
        token = int(context.forward(first, 1)[-1].argmax())
        if context.length < n_ctx:
            if drafting is not None:
                drafting.forward([*first, token], 1)
            context.forward([token], 1)
    tokenizer.piece(token)
    tokenizer.entry(token)
    tokenizer.is_padding(token)
    _ = tokenizer.end_tokens, tokenizer.special_texts


if __name__ == "__main__":
    main()
