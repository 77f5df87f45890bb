"""The app with the bundled model in a real terminal: it opens, answers, stops and is left."""

import pytest

from tests.fixtures.tmux import Terminal, needs_tmux


@pytest.mark.slow
@needs_tmux
@pytest.mark.usefixtures("llamacpp")
def test_it_answers_what_was_sent_before_it_began_stops_and_is_left() -> None:
    one = Terminal()
    try:
        one.write("Write a long story about a lighthouse.")
        one.press("Enter")
        one.until(lambda shown: "tok/s" in shown and "Welcome" not in shown)
        one.press("Escape")
        one.until(lambda shown: "stopped after" in shown and "Ctrl+T continues" in shown)
        one.press("C-q")
        one.until(lambda shown: "left with 0" in shown)
    finally:
        one.close()
