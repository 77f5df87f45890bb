"""Where a reply may begin with reasoning, and where its first token must match."""

import numpy as np
import pytest

from app.structured_output.reply_constraints import ReplyConstraints
from backends.chat.chat_template import Prompt
from decoding.constraint.grammar import Grammar, GrammarKind
from tests.fixtures.pieces import END, Pieces

OPEN, CLOSE, YES, NO, STOP = range(5)


class Reasoning(Pieces):
    """The vocabulary of a model that reasons, by its template."""

    chat_template = "{{ messages }} <think> </think>"


@pytest.mark.parametrize("is_conversation", [True, False])
def test_only_an_answer_in_a_conversation_follows_reasoning(is_conversation: bool) -> None:
    constraints = ReplyConstraints(Reasoning([b"<think>", b"</think>", b"yes", b"no", END]))
    prompt = Prompt([NO, NO], is_conversation=is_conversation)
    mask = constraints.of(Grammar(GrammarKind.REGEX, "yes|no"), prompt).allowed(())
    assert mask is not None
    allowed = np.flatnonzero(mask).tolist()
    assert allowed == ([OPEN, YES, NO] if is_conversation else [YES, NO])
