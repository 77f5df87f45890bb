"""What timers call, run among a widget's own messages."""

from collections.abc import Awaitable, Callable

from textual.message_pump import MessagePump


def in_turn(widget: MessagePump, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """For a timer: let a widget run a callback between two of its messages, once at a time.

    Textual runs what a timer calls in the timer's task, and cancels that task at the end. Where the
    callback is waiting for messages to be removed just then, their tasks are cancelled with it, and
    the app ends with an error. A widget's own task is not cancelled: closing waits for it.
    """
    is_waiting = False

    async def run() -> None:
        nonlocal is_waiting
        is_waiting = False
        await callback()

    def call() -> None:
        nonlocal is_waiting
        if not is_waiting:
            is_waiting = widget.call_later(run)

    return call
