"""How much of the JSON Schema Test Suite structured output supports, and whether it agrees with it.

Takes the suite's folder (github.com/json-schema-org/JSON-Schema-Test-Suite), which is not part of
this repository, and reads the schemas of one draft. A schema is supported if it compiles. Of each
supported one every instance is written as a reply would be, and must be allowed to the end exactly
if the suite calls it valid.

    python -m scripts.count_supported_schemas FOLDER [--draft draft2020-12]
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backends.base import SpecchatError
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.grammar import Grammar, GrammarKind
from decoding.constraint.matcher import GrammarVocabulary

_END = 256


class _Bytes:
    """A tokenizer of one token a byte, and one that ends a reply."""

    n_vocab = _END + 1
    end_tokens = frozenset({_END})
    eos = _END
    bos = None
    bos_text = ""
    special_texts = ("<end>",)
    chat_template = None
    infill = None

    def encode(self, text: str, *, special: bool) -> list[int]:
        del special
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token == _END else bytes([token])

    def entry(self, token: int) -> bytes:
        return b"<end>" if token == _END else bytes([token])

    def is_padding(self, token: int) -> bool:
        del token
        return False


def _groups(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Groups of tests of one schema, with the name of the keyword that they test."""
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            yield path.stem, group


def main() -> None:
    """Count, and print what is not supported or judged otherwise, by keyword."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", default="draft2020-12")
    arguments = parser.parse_args()
    vocabulary = GrammarVocabulary(_Bytes(), list)
    counts, unsupported = Counter[str](), Counter[str]()
    looser, stricter = Counter[str](), Counter[str]()
    for keyword, group in _groups(arguments.folder / "tests" / arguments.draft):
        counts["schemas"] += 1
        try:
            schema = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(group["schema"]))
            grammar = compiled(schema)
            vocabulary.constraint(grammar)
        except SpecchatError:
            unsupported[keyword] += 1
            continue
        counts["supported"] += 1
        for test in group["tests"]:
            counts["instances"] += 1
            tokens = [*json.dumps(test["data"], ensure_ascii=False).encode(), _END]
            allowed = vocabulary.constraint(grammar).count_allowed((), tokens) == len(tokens)
            if allowed and not test["valid"]:
                looser[keyword] += 1
            if not allowed and test["valid"]:
                stricter[keyword] += 1
    agreed = counts["instances"] - looser.total() - stricter.total()
    print(f"{counts['supported']:,} of {counts['schemas']:,} schemas are supported")
    print(f"{agreed:,} of their {counts['instances']:,} instances are judged as in the suite")
    for name, kinds in (
        ("not supported", unsupported),
        ("invalid, but allowed", looser),
        ("valid, but not allowed", stricter),
    ):
        print(f"{name}: {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}")


if __name__ == "__main__":
    main()
