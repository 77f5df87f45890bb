"""/v1/embeddings: OpenAI's client gets the formula's vectors, and is told why there are none."""

import re
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.settings import file
from tests.app.serve.conftest import Spoken
from tests.fixtures.served_engine import post
from tests.fixtures.tiny.bert import random_weights, reference, tokens_of

if TYPE_CHECKING:
    import openai

PATH = "/v1/embeddings"


@pytest.fixture
def named(spoken: Spoken, bert_file: Path) -> str:
    """The embedding model, as the settings of the server name it."""
    file.save(spoken.server.served.engine.paths.settings, {"embedding_model": str(bert_file)})
    return str(bert_file)


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_a_client_gets_the_vectors_of_its_texts(
    client: "openai.OpenAI", named: str, form: Any
) -> None:
    texts = ["hello there.", "is it so?", "hello there."]
    options = {"encoding_format": form} if form else {}
    found = client.embeddings.create(model="text-embedding-3-small", input=texts, **options)
    tokens = list(map(tokens_of, texts))
    assert [one.index for one in found.data] == [0, 1, 2]
    for one, read in zip(found.data, tokens, strict=True):
        raw: Any = one.embedding
        row = np.frombuffer(b64decode(raw), "<f4") if isinstance(raw, str) else np.array(raw)
        assert row == pytest.approx(reference(random_weights(), read), abs=1e-3)
    assert (found.model, found.object) == (Path(named).name, "list")
    count = sum(map(len, tokens))
    assert (found.usage.prompt_tokens, found.usage.total_tokens) == (count, count)
    alone = client.embeddings.create(model=named, input=texts[1])
    assert alone.data[0].embedding == pytest.approx(found_row(found.data[1].embedding), abs=2e-3)


def found_row(row: Any) -> list[float]:
    return np.frombuffer(b64decode(row), "<f4").tolist() if isinstance(row, str) else row


@pytest.mark.parametrize(
    ("asked", "status", "param", "message"),
    [
        ({}, 400, "input", "missing|required"),
        ({"input": ""}, 400, "input", "at least 1"),
        ({"input": []}, 400, "input", "at least 1"),
        ({"input": ["a"] * 2049}, 400, "input", "at most 2048"),
        ({"input": [1, 2, 3]}, 400, "input.0", "string"),
        ({"input": "a", "dimensions": 7}, 400, "dimensions", "not supported"),
        ({"input": ["a", "z" * 70]}, 400, "input", r"input\[1\] has more than 64 tokens"),
        ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format", "float.*base64"),
        ({"input": "a", "truncate": True}, 400, "truncate", "not supported"),
    ],
)
@pytest.mark.usefixtures("named")
def test_what_cannot_be_embedded_is_refused_by_name(
    spoken: Spoken, asked: dict[str, object], status: int, param: str, message: str
) -> None:
    answered = post(spoken.server, PATH, asked)
    assert (answered.status, answered.error["param"]) == (status, param)
    assert re.search(message, answered.error["message"])


@pytest.mark.slow
def test_without_an_embedding_model_it_is_told_what_to_do(spoken: Spoken, named: str) -> None:
    chat = spoken.server.served.models.first.name
    answered = post(spoken.server, PATH, {"input": "a", "model": chat})
    assert (answered.status, answered.error["param"]) == (400, "model")
    assert answered.error["message"] == f"{chat} is no embedding model; {Path(named).name} is"
    settings = spoken.server.served.engine.paths.settings
    for value, status, message in (
        (None, 404, "no embedding model is set here; the setting embedding_model names one"),
        ("demo", 400, "is no embedding model: no text becomes one vector"),
        ("nomic-embed-text", 400, "get it with: specchat models pull nomic-embed-text"),
    ):
        file.save(settings, {"embedding_model": value})
        answered = post(spoken.server, PATH, {"input": "a"})
        assert answered.status == status
        assert answered.error["message"].endswith(message)
