"""Server-sent events, the form in which replies are streamed."""

import json
from collections.abc import Iterable

from app.serve.dialect import Frame

COMMENT = b": the reply is still coming\n\n"
"""What clients skip; it keeps them from giving up in a silence."""


def encoded(frames: Iterable[Frame]) -> bytes:
    """Frames as the bytes of a stream."""
    return b"".join(_encoded(frame) for frame in frames)


def _encoded(frame: Frame) -> bytes:
    name = f"event: {frame.event}\n" if frame.event else ""
    data = frame.data if isinstance(frame.data, str) else json_text(frame.data)
    return f"{name}data: {data}\n\n".encode()


def json_text(data: object) -> str:
    """Compact JSON on one line; an unpaired surrogate, which no text of ours has, is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text
