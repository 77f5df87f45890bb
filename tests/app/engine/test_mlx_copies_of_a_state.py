"""On MLX, too, a running state is kept beside the present one only once something may draft."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.engine.reply import new_reply
from app.engine.session import Session
from app.engine.session_opening import open_session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from decoding.sampling.settings import SamplingSettings

GREEDY = SamplingSettings(temperature=0.0)


def opened(model: Path, draft: str) -> Session:
    options = SessionOptions(str(model), draft=draft, ctx=256)
    return open_session(options, Paths.of_this_user(), lambda _: None)


def answered(session: Session) -> list[int]:
    reply = new_reply()
    prompt = session.raw_prompt("abc abc abc abc")
    for _ in session.stream(prompt, GREEDY, 16, reply, lambda: False):
        pass
    return reply.token_ids


def test_it_comes_with_the_first_drafter(small_mlx: Callable[..., Path]) -> None:
    folder = small_mlx("hybrid")
    with closing(opened(folder, "lookup")) as drafted:
        expected, with_copies = answered(drafted), drafted.context.state_bytes
    with closing(opened(folder, "off")) as session:
        assert session.context.max_rollback == 0
        assert 2 * session.context.state_bytes == with_copies
        assert answered(session) == expected
        held = list(session.context.tokens)
        session.redraft("lookup", lambda _: None)
        assert session.drafting.missing == ""
        assert session.context.max_rollback > 0
        assert session.context.state_bytes == with_copies
        assert list(session.context.tokens) == held
        assert answered(session) == expected
