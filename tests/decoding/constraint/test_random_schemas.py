"""Whatever a schema of the supported kinds asks for, every reply that ends matches it.

The model is a table of random logits, which says anything that it may.
"""

import json
import random
import string
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import pytest

from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.constraint.matcher import GrammarVocabulary
from decoding.drafters.forced_tokens import ForcedTokens
from decoding.events import Finish, FinishReason, Step
from decoding.generation import Limits, always, generate
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.pieces import END, PADDING, Pieces

_LETTERS = [letter.encode() for letter in string.ascii_letters + string.digits]
_SIGNS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"-", b".", b"\\", b'{"', b'", "', b'": ']
PIECES = Pieces([*_LETTERS, *_SIGNS, b"true", b"fals", b"e", b"null", b'"}', PADDING, END])
VOCABULARY = GrammarVocabulary(PIECES, PIECES.spell)
LENGTH = 400


def schema(choose: random.Random, depth: int = 3) -> dict[str, Any]:
    """A random schema, all of whose values are bounded."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
    kinds += ["object", "array", "anyOf", "pattern"] if depth else []
    made: dict[str, Any] = {"type": (kind := choose.choice(kinds))}
    match kind:
        case "string":
            least = choose.randrange(4)
            made = {"type": kind, "minLength": least, "maxLength": least + choose.randrange(5)}
        case "integer" | "number":
            least = choose.randrange(-50, 50)
            made = {"type": kind, "minimum": least, "maximum": least + choose.randrange(1, 90)}
        case "enum":
            made = {"enum": choose.sample(["a", "Bc", 1, -2, True, None, [1, 2], {"a": 3}], 3)}
        case "const":
            made = {"const": choose.choice(["abc", 12, False, {"k": [1, "x"]}])}
        case "pattern":
            made = {"type": "string", "pattern": choose.choice(["^[a-c]{1,3}$", r"^\\d\\d-\\d$"])}
        case "anyOf":
            made = {"anyOf": [schema(choose, depth - 1) for _ in range(2)]}
        case "array":
            least = choose.randrange(3)
            items = schema(choose, depth - 1)
            made = {"type": kind, "items": items, "minItems": least, "maxItems": least + 1}
        case "object":
            names = choose.sample(["a", "name", "x y", "Long"], choose.randrange(1, 4))
            made = {
                "type": kind,
                "properties": {name: schema(choose, depth - 1) for name in names},
                "required": choose.sample(names, choose.randrange(len(names) + 1)),
                "additionalProperties": False,
            }
        case _:
            pass
    return made


def reply(asked: dict[str, Any], seed: int, context: Any) -> tuple[str, FinishReason]:
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(asked))
    settings = SamplingSettings(1.0, 0, 1.0, 0.0, seed=seed)
    events = list(
        generate(
            context,
            [0],
            settings,
            Limits(LENGTH, PIECES.end_tokens),
            drafters=always(ForcedTokens()),
            constraint=VOCABULARY.constraint(compiled(grammar)),
        )
    )
    tokens = [token for event in events if isinstance(event, Step) for token in event.tokens]
    assert isinstance(events[-1], Finish)
    return PIECES.text(tokens).decode(), events[-1].reason


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 1060), marks=pytest.mark.slow)], ids=["60", "1,000"]
)
def test_every_reply_matches_its_schema(seeds: range, fake_context: Callable[..., Any]) -> None:
    table = np.random.default_rng(0).normal(size=(1, PIECES.n_vocab, PIECES.n_vocab))
    rows = np.broadcast_to(table.astype(np.float32), (PIECES.n_vocab + 1, *table.shape[1:]))
    ended = 0
    for seed in seeds:
        asked = schema(random.Random(seed))
        context = fake_context(rows, n_ctx=LENGTH + 8)
        text, reason = reply(asked, seed, context)
        if reason is FinishReason.STOP:
            jsonschema.validate(json.loads(text), asked)
            ended += 1
    assert ended == len(seeds), "all values are bounded"
