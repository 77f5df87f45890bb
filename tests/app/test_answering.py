"""A training learns that some process answers; where nobody trains, an answer leaves no trace."""

import os
from contextlib import closing

from app.answering import is_answering, listen
from app.engine.reply import Reply, Request
from app.loading.session_options import SessionOptions
from app.paths import Paths
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.sessions import GREEDY, conversation


def answer(paths: Paths) -> None:
    session_of = opened(ScriptedModel(["one ", "two "]))
    with closing(session_of(SessionOptions(), paths, lambda _: None)) as session:
        reply = Reply(Request(conversation("hello"), GREEDY, 2))
        prompt, _ = session.prompt(reply.request)
        for _ in session.stream(prompt, reply, lambda: False):
            pass


def test_an_answer_marks_what_a_training_made() -> None:
    paths = Paths.of_this_user()
    answer(paths)
    assert not paths.training.exists()
    listen(paths.answering)
    assert not is_answering(paths.answering)
    answer(paths)
    assert is_answering(paths.answering)


def test_an_answer_of_a_while_ago_is_over() -> None:
    mark = Paths.of_this_user().answering
    listen(mark)
    os.utime(mark, None)
    assert is_answering(mark)
    then = mark.stat().st_mtime - 60
    os.utime(mark, (then, then))
    assert not is_answering(mark)
