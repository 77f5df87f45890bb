"""Memory that a model and a head take beside their mapped weights, against their bill (Linux).

python -m scripts.measure_memory MODEL [HEAD] [--ctx TOKENS]

HEAD: a file, or the model's own for its next-token layers. Both contexts are filled, and the
largest passes of each are run. Prints a line of JSON with bytes: "taken" is the growth of the
process's anonymous memory, which mapped weights are not a part of; "billed" has the items for it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from app.process import return_large_blocks
from backends.base import BlockContext, Context, Model
from backends.engines.model_loading import load, load_head
from backends.llamacpp import library
from models.metadata.memory_bill import MemoryBill, bill, facts_of
from models.metadata.trained_drafters import head_facts

_LEFT = 80
"""Tokens of context that are left for the last passes."""

_DRAFTED = _LINES = 8


def main() -> int:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("head", type=Path, nargs="?")
    parser.add_argument("--ctx", type=int, default=4096)
    options = parser.parse_args()
    return_large_blocks()  # as the app does
    library.start()
    before = _anonymous()
    with closing(load(options.model, 2, 0)) as model:
        taken = _most(model, options.head, options.ctx) - before
    billed = {"model": _items(bill(facts_of(options.model), options.ctx))}
    if options.head is not None:
        billed["head"] = _items(bill(head_facts(options.head, options.model), options.ctx))
    print(json.dumps({"taken": taken, "billed": billed}))
    return 0


def _items(billed: MemoryBill) -> dict[str, int]:
    return {"cache": billed.cache, "state": billed.state, "working": billed.compute}


def _most(model: Model, path: Path | None, n_ctx: int) -> int:
    """The most that the process has at any of a few moments."""
    found: list[int] = []
    with closing(model.open(n_ctx)) as context, ExitStack() as stack:
        drafting = None
        if path is not None:
            head = stack.enter_context(closing(load_head(path, model, context)))
            drafting = head.open(n_ctx)
        _fill(context)
        found.append(_anonymous())
        if drafting is not None:
            _fill(drafting)
            found.append(_anonymous())
            _draft(drafting)
            found.append(_anonymous())
        _run_largest(context)
        found.append(_anonymous())
    return max(found)


def _fill(context: Context) -> None:
    for count in _chunks(context):
        context.forward([3 + place % 200 for place in range(count)], 0)


def _chunks(context: Context) -> Iterator[int]:
    left = context.n_ctx - _LEFT
    while left > 0:
        yield min(left, context.n_chunk)
        left -= context.n_chunk


def _run_largest(context: Context) -> None:
    """Verify the largest tree, or the longest draft."""
    if context.can_verify_tree:
        _run_tree(context)
    else:
        longest = 1 + min(context.max_rollback, _DRAFTED)
        context.forward([5] * longest, longest)


def _run_tree(context: Context) -> None:
    """Run a tree of as many nodes as a pass may have, in a few lines.

    Each line has the engine note all tokens before once more: of 64 lines that took 12 MB at 4,096
    tokens, which is in no bill.
    """
    count = context.max_logits
    parents = [node - _LINES if node >= _LINES else -1 for node in range(count)]
    rows = context.forward_tree([5] * count, parents)
    assert len(rows) == count
    context.commit([0])


def _draft(context: Context) -> None:
    context.forward([5], 1)
    if isinstance(context, BlockContext):
        context.draft(_DRAFTED)
    elif context.can_verify_tree:
        _run_tree(context)
    else:
        for _ in range(_DRAFTED):
            context.forward([5], 1)


def _anonymous() -> int:
    """Bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
