"""Where a reply may begin with reasoning, and where its first token must match."""

import numpy as np
import pytest

from app.chat.conversation import ReplyOptions
from app.structured_output import ReplyConstraints
from backends.chat.chat_template import Prompt
from decoding.constraint.grammar import Grammar, GrammarKind
from tests.fixtures.pieces import END, Pieces

OPEN, CLOSE, YES, NO, STOP = range(5)


MARKS = [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|channel>", "<channel|>")]
"""Of thinking: Qwen's, Mistral's and Gemma 4's."""


@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("is_conversation", [True, False])
def test_only_an_answer_in_a_conversation_follows_reasoning(
    is_conversation: bool, marks: tuple[str, str]
) -> None:
    tokenizer = Pieces([*(mark.encode() for mark in marks), b"yes", b"no", END])
    tokenizer.chat_template = "{{ messages }}" + " ".join(marks)
    constraints = ReplyConstraints(tokenizer)
    prompt = Prompt([NO, NO], is_conversation=is_conversation)
    options = ReplyOptions(grammar=Grammar(GrammarKind.REGEX, "yes|no"))
    constraint = constraints.of(options, prompt)
    assert constraint is not None
    mask = constraint.allowed(())
    assert mask is not None
    allowed = np.flatnonzero(mask).tolist()
    assert allowed == ([OPEN, YES, NO] if is_conversation else [YES, NO])
