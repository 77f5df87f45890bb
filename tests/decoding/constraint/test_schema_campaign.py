"""Random schemas of the kinds that clients send: no text that they allow breaks them.

Texts are random walks through the mask, in bytes; `jsonschema` judges them, with exact numbers.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import jsonschema
import numpy as np
import pytest

from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarError, GrammarKind
from decoding.constraint.matcher import GrammarVocabulary, MatcherConstraint
from tests.fixtures.pieces import END, Pieces

STOP = 256
BYTES = Pieces([*(bytes([byte]) for byte in range(STOP)), END])
VOCABULARY = GrammarVocabulary(BYTES, list)
WEIGHTS = np.full(STOP + 1, 0.02)
for letters, weight in ((b"aeiot0159-_.@:TZ", 0.5), (b'"}]', 12.0), (b",", 4.0), (b"{[\\", 2.0)):
    WEIGHTS[list(letters)] = weight
WEIGHTS[STOP] = 30.0
WALK = 250
"""Bytes of a text after which it is given up."""

NAMES = ["a", "b", "id", "x y", "ä", 'q"', "long_name", "x-a"]
FORMATS = ["date", "date-time", "time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname"]
ANNOTATIONS = ["path", "password", "binary", "regex", "uri-reference", "int64", "color"]
PATTERNS = ["^[a-c]{1,3}$", r"^\d+-\d$", "^x-", "a|b", "^[^a]*$", r"^(ab)*$", "^.{2,4}$", r"\w\.\w"]
TEXTS = ["a", "Bc", "ä", 'q"\\', "a\nb", "", "/", "é", "12"]
WHOLE = [0, 1, -1, 2, 5, 9, 10, 99, 100, -100, 255, 2**31 - 1, 2**53 + 1, 2**63 - 1, -(2**63)]
PARTS = ["0.5", "-0.5", "0.1", "0.25", "1.05", "-9.99", "1e20", "1e-7", "0.30", "1.0", "2.5e3"]


def number(choose: random.Random, *, whole: bool = False) -> int | Decimal:
    if whole or choose.random() < 0.6:
        near = choose.choice(WHOLE) + choose.randrange(-1, 2)
        return near if choose.random() < 0.7 else choose.randrange(-300, 300)
    return Decimal(choose.choice(PARTS))


def value(choose: random.Random, depth: int = 2) -> object:
    kind = choose.randrange(7 if depth else 5)
    if kind == 5:
        return [value(choose, depth - 1) for _ in range(choose.randrange(3))]
    if kind == 6:
        names = choose.sample(NAMES, choose.randrange(3))
        return {name: value(choose, depth - 1) for name in names}
    return [choose.choice(TEXTS), number(choose), True, False, None][kind]


class Client:
    """Makes schemas as clients send them."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.definitions: list[str] = []

    def whole(self) -> Any:
        self.definitions = [f"d/{n}" for n in range(self.choose.randrange(3))]
        made = self.schema(3)
        if isinstance(made, dict) and self.definitions:
            made["$defs"] = {name: self.schema(2) for name in self.definitions}
        return made

    def may(self, chance: float) -> bool:
        return self.choose.random() < chance

    def schema(self, depth: int) -> Any:
        leaves = ["string", "integer", "number", "boolean", "null", "enum", "const", "any"]
        inner = ["object"] * 4 + ["array"] * 2 + ["anyOf", "oneOf", "allOf", "types", "union"]
        kind = self.choose.choice(leaves + inner * (depth > 0) + ["$ref"] * bool(self.definitions))
        made: Any = getattr(self, f"_{kind}".replace("$", ""))(depth)
        if isinstance(made, dict):
            if self.may(0.1):
                made["description"] = "text"
            if self.may(0.01):
                made[self.choose.choice(["not", "if", "contains", "x-guidance"])] = {}
            if self.may(0.03):
                made["enum"] = [value(self.choose) for _ in range(3)]
        return made

    def _any(self, depth: int) -> Any:
        return self.choose.choice([{}, True, True, False, {"title": "any"}])

    def _null(self, depth: int) -> Any:
        return {"type": "null"}

    def _boolean(self, depth: int) -> Any:
        return {"type": "boolean"}

    def _string(self, depth: int) -> Any:
        made: dict[str, Any] = {"type": "string"}
        if self.may(0.4):
            made["minLength"] = self.choose.randrange(4)
        if self.may(0.4):
            made["maxLength"] = made.get("minLength", 0) + self.choose.randrange(-1, 5) % 9
        if self.may(0.25):
            made["pattern"] = self.choose.choice(PATTERNS)
        elif self.may(0.25):
            made["format"] = self.choose.choice(FORMATS + ANNOTATIONS)
        return made

    def _numbers(self, kind: str) -> Any:
        made: dict[str, Any] = {"type": kind}
        draw = partial(number, self.choose, whole=kind == "integer" and self.may(0.8))
        low, high = sorted((draw(), draw()))
        if self.may(0.05):
            low, high = high, low
        if self.may(0.6):
            made[self.choose.choice(["minimum", "exclusiveMinimum"])] = low
        if self.may(0.6):
            made[self.choose.choice(["maximum", "exclusiveMaximum"])] = high
        if self.may(0.15):
            made["multipleOf"] = self.choose.choice(
                [1, 2, 3, 7, 10, Decimal("0.5"), Decimal("0.01")]
            )
        if self.may(0.05):
            made["format"] = "int64"
        return made

    def _integer(self, depth: int) -> Any:
        return self._numbers("integer")

    def _number(self, depth: int) -> Any:
        return self._numbers("number")

    def _enum(self, depth: int) -> Any:
        made: dict[str, Any] = {"enum": [value(self.choose) for _ in range(4)]}
        if self.may(0.3):
            made["type"] = self.choose.choice(["string", "number", "integer", "object"])
        return made

    def _const(self, depth: int) -> Any:
        return {"const": value(self.choose)}

    def _ref(self, depth: int) -> Any:
        place = "#/$defs/" + self.choose.choice(self.definitions).replace("/", "~1")
        made: dict[str, Any] = {"$ref": place if self.may(0.9) else "#"}
        return made | (self._object(1) if self.may(0.1) else {})

    def _object(self, depth: int) -> Any:
        names = self.choose.sample(NAMES, self.choose.randrange(5))
        made: dict[str, Any] = {"type": "object"} if self.may(0.95) else {}
        if names or self.may(0.5):
            made["properties"] = {name: self.schema(depth - 1) for name in names}
        if self.may(0.8):
            made["required"] = self.choose.sample(names, self.choose.randrange(len(names) + 1))
        if self.may(0.1):
            made.setdefault("required", []).append("unlisted")
        if self.may(0.7):
            closed = self.may(0.7)
            made["additionalProperties"] = False if closed else self.schema(depth - 1)
        if self.may(0.1):
            patterns = self.choose.sample(PATTERNS, self.choose.randrange(1, 3))
            made["patternProperties"] = {one: self.schema(depth - 1) for one in patterns}
        if self.may(0.1):
            names_schemas = [{"type": "string"}, {"pattern": "^[a-z]{1,3}$"}, {"enum": ["a", "k"]}]
            made["propertyNames"] = self.choose.choice([*names_schemas, {"maxLength": 2}])
        if self.may(0.1):
            made["minProperties"] = self.choose.randrange(4)
        if self.may(0.1):
            made["maxProperties"] = self.choose.randrange(4)
        if self.may(0.05):
            made["dependentRequired"] = {}
        return made

    def _array(self, depth: int) -> Any:
        made: dict[str, Any] = {"type": "array"}
        if self.may(0.8):
            made["items"] = self.schema(depth - 1)
        if self.may(0.25):
            made["prefixItems"] = [self.schema(depth - 1) for _ in range(1, 3)]
        if self.may(0.5):
            made["minItems"] = self.choose.randrange(3)
        if self.may(0.5):
            made["maxItems"] = made.get("minItems", 0) + self.choose.randrange(3)
        if self.may(0.1):
            made["uniqueItems"] = self.may(0.2)
        return made

    def _anyOf(self, depth: int) -> Any:  # noqa: N802
        made: dict[str, Any] = {"anyOf": [self.schema(depth - 1) for _ in range(2)]}
        return made | (self._object(1) if self.may(0.1) else {})

    def _oneOf(self, depth: int) -> Any:  # noqa: N802
        return {"oneOf": [self.schema(depth - 1) for _ in range(2)]}

    def _allOf(self, depth: int) -> Any:  # noqa: N802
        if self.may(0.5):
            return {"allOf": [self._object(depth), self._object(depth)]}
        if self.may(0.5):
            return {"allOf": [self._numbers("number"), self._numbers("integer")]}
        return {"allOf": [self.schema(depth - 1) for _ in range(2)]}

    def _types(self, depth: int) -> Any:
        kinds = self.choose.sample(["string", "integer", "null", "object", "number"], 2)
        return self._string(0) | self._object(depth) | {"type": kinds}

    def _union(self, depth: int) -> Any:
        """Told apart by a property, as zod and pydantic write it."""
        options = [self._object(depth - 1) | {"type": "object"} for _ in range(2)]
        for tag, option in enumerate(options):
            option.setdefault("properties", {})["kind"] = {"const": f"k{tag}"}
            option.setdefault("required", []).append("kind")
        return {self.choose.choice(["oneOf", "anyOf"]): options}


def written(item: object, *, is_short: bool = False) -> str:
    """JSON on one line, numbers without an exponent; is_short: and without zeros at their end."""
    if isinstance(item, dict):
        fields = (
            f"{written(name)}: {written(one, is_short=is_short)}" for name, one in item.items()
        )
        return f"{{{', '.join(fields)}}}"
    if isinstance(item, list):
        return f"[{', '.join(written(one, is_short=is_short) for one in item)}]"
    if isinstance(item, Decimal):
        text = format(item, "f")
        return text.rstrip("0").rstrip(".") if is_short and "." in text else text
    return json.dumps(item, ensure_ascii=False)


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def walk(constraint: MatcherConstraint, random: np.random.Generator) -> str | None:
    """A random text that may be said; None if it does not end soon."""
    said: list[int] = []
    for _ in range(WALK):
        mask = constraint.allowed(())
        assert mask is not None
        weights = WEIGHTS * mask
        total = weights.sum()
        assert total > 0, f"nothing may follow {bytes(said)!r}"
        token = int(np.searchsorted(weights.cumsum(), random.random() * total, side="right"))
        if token == STOP:
            return bytes(said).decode()
        said.append(token)
        constraint.accept([token])
    return None


def changed(item: Any, choose: random.Random) -> Any:
    """A value with one part of it changed."""
    if isinstance(item, dict) and item and choose.random() < 0.8:
        name = choose.choice(list(item))
        if choose.random() < 0.3:
            return {key: one for key, one in item.items() if key != name}
        return item | {name: changed(item[name], choose)}
    if isinstance(item, list) and item and choose.random() < 0.8:
        at = choose.randrange(len(item))
        return [*item[:at], *[changed(item[at], choose)] * choose.randrange(3), *item[at + 1 :]]
    return choose.choice([value(choose, 0), [], {}])  # no names in another order


CHECKED = ["date", "uuid", "ipv4", "ipv6"]
"""Formats that `jsonschema` knows without further packages."""


def judge(schema: Any) -> Callable[[Any], bool | None]:
    """Whether a value is valid; None where the judge follows references without end."""
    checker = jsonschema.FormatChecker(CHECKED)
    validator = jsonschema.Draft202012Validator(schema, format_checker=checker)

    def is_valid(item: Any) -> bool | None:
        try:
            return validator.is_valid(item)
        except RecursionError:
            return None

    return is_valid


def results(seeds: range) -> Iterator[tuple[str, str]]:
    """What became of each schema and of each text, in a word and in full."""
    for seed in seeds:
        schema, walks = Client(seed).whole(), np.random.default_rng(seed)
        text = written(schema)
        try:
            grammar = compiled(Grammar(GrammarKind.JSON_SCHEMA, text))
        except GrammarError as error:
            yield "refused", error.why
            continue
        yield "accepted", text
        is_valid, choose = judge(schema), random.Random(seed)
        for _ in range(3):
            said = walk(VOCABULARY.constraint(grammar), walks)
            if said is None:
                yield "unended", text
                continue
            words = {True: "right", False: "WRONG", None: "unjudged"}
            yield words[is_valid(read(said))], f"{seed} {text} allows {said}"
            other = changed(read(said), choose)
            # Of names that are not listed one counts: two may be the same name twice.
            is_counted = re.search('"minProperties": [23]', text) is not None
            if is_valid(other) and '"format"' not in text and not is_counted:
                again = written(other, is_short=True)
                tokens = [*again.encode(), STOP]
                count = VOCABULARY.constraint(grammar).count_allowed((), tokens)
                word = "kept" if count == len(tokens) else "LOST"
                yield word, f"{seed} {text} refuses {again} at {count}"


NAMED = "keywords that specchat cannot guarantee|nothing can match|oneOf|patternProperties|itself"
"""What a refusal names."""


@pytest.mark.parametrize(
    "seeds",
    [range(60), pytest.param(range(60, 50_060), marks=pytest.mark.nightly)],
    ids=["60", "50,000"],
)
def test_no_text_that_a_random_schema_allows_breaks_it(seeds: range) -> None:
    counts = Counter[str]()
    for word, text in results(seeds):
        counts[word] += 1
        assert word not in ("WRONG", "LOST"), text
        assert word != "refused" or re.search(NAMED, text), text
    print(dict(counts))
    assert counts["accepted"] > len(seeds) / 2
    assert counts["right"] > counts["accepted"]
    assert counts["kept"] > counts["accepted"] / 4
