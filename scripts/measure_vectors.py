"""Measures what vectors find: `python -m scripts.measure_vectors MODEL`.

MODEL: a GGUF embedding model; or a folder of one like all-MiniLM-L6-v2 in Hugging Face's form,
which is converted. Of the fifty questions of the tests, how many find their passage within some
numbers of tokens, by words and by words and vectors; also the time of a passage and of a question.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from app.documents.library import Library
from app.loading.embedding import Embedding
from app.paths import Paths
from backends.hardware.host import physical_cores
from tests.fixtures.tiny.bert import convert

_DOCUMENTS = Path(__file__).parents[1] / "tests" / "fixtures" / "library"
_BUDGETS = (500, 1000, 2000, 3000)


def found(library: Library, questions: Sequence[dict[str, str]]) -> list[int]:
    """How many questions find their passage, for each budget."""
    return [
        sum(
            any(one["passage"] in passage.text for passage in library.search(one["question"], most))
            for one in questions
        )
        for most in _BUDGETS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    questions = json.loads(_DOCUMENTS.with_name("library_questions.json").read_text("utf-8"))
    kinds = {
        "in its words": [one for one in questions if not one.get("other_words")],
        "in other words": [one for one in questions if one.get("other_words")],
    }
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        if model.is_dir():
            model = convert(model, folder / f"{model.name}.gguf")
        library = Library(str(_DOCUMENTS))
        library.refresh()
        vectors = Embedding(str(model), Paths(folder, folder, folder), physical_cores())
        vectors.load()
        print(f"within {', '.join(map(str, _BUDGETS))} tokens")
        for by in ("words", "words and vectors"):
            for kind, asked in kinds.items():
                print(f"{by:18} {kind:15} {found(library, asked)} of {len(asked)}")
            if by == "words":
                started = time.perf_counter()
                library.embed(vectors)
                seconds = time.perf_counter() - started
                print(f"{1000 * seconds / library.passages:.0f} ms a passage")
        vectors.close()
        library.close()


if __name__ == "__main__":
    main()
