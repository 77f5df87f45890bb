"""Damages values of a JSON document: their size, sign, type or depth."""

import math
from random import Random
from typing import Any, cast

_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 513, (1 << 31) - 1, 1 << 32, 1 << 63, 1 << 64, 10**400, 0.5,
    -1e-6, 1e308, math.nan, math.inf, "", "llama", "\0", "\ud800", "9" * 5000, [], [[]], [0] * 5000,
    {}, {"a": {}}, [-1, 1], [1, 0], [0, 1 << 63],
)  # fmt: skip


def changed(value: Any, random: Random) -> Any:
    """Copy with one to three values replaced, removed or deeply nested."""
    for _ in range(random.choice((1, 1, 2, 3))):
        value = _changed(value, random)
    return value


def _changed(value: Any, random: Random) -> Any:
    """Change a value at a random path."""
    if isinstance(value, dict) and value and random.randrange(5):
        table = dict(cast("dict[str, Any]", value))
        key = random.choice(list(table))
        if random.randrange(8) == 0:
            del table[key]
        elif random.randrange(12) == 0:
            table[f"{key}x"] = table.pop(key)
        else:
            table[key] = _changed(table[key], random)
        return table
    if isinstance(value, list) and value and random.randrange(3):
        items = list(cast("list[Any]", value))
        at = random.randrange(len(items))
        items[at] = _changed(items[at], random)
        return items
    if random.randrange(40) == 0:
        deep: list[Any] = []
        for _ in range(900):  # more than json can write is damage to bytes
            deep = [deep]
        return deep
    return random.choice(_ODD)
