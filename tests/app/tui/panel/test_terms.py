"""Explanations of figures and drafters."""

from app.tui.panel.terms import SPEED, TERMS, drafter_term


def test_sentences() -> None:
    assert SPEED.sentence.startswith("speed: tokens a second")
    assert drafter_term("lookup").sentence == (
        "lookup copies from what was said in this chat. It is free."
    )
    assert drafter_term("cascade/ngram:3").name == "ngram"
    assert drafter_term("jacobi").text == drafter_term("lookahead:w=5").text
    assert drafter_term("prediction").sentence == (
        "prediction copies from the text that was predicted for this answer. It is free."
    )
    assert drafter_term("smollm2\x1b").sentence == "smollm2␛: a smaller model that guesses ahead."


def test_each_term_is_explained_once() -> None:
    assert len({term.name for term in TERMS}) == len(TERMS)
