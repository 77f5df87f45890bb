"""No text becomes a mark of any family where that is not meant, and none of it is lost."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.base import Tokenizer
from backends.base.plain_text import marks_of
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from tests.fixtures.family_marks import ALL_MARKS, TEMPLATE_OF_ALL

FRAGMENTS = ["<", "<|", "|>", ">", "[", "a", " ", "\n", "é", "<|<|end|>|>", "start|>", "[[INST]"]
SPACE = "\u2581"
"""What SentencePiece writes for a space."""
TEXTS = st.lists(st.sampled_from([*ALL_MARKS, *FRAGMENTS]), max_size=8).map("".join)


def llama(folder: Path) -> Iterator[Tokenizer]:
    """A SentencePiece vocabulary of llama.cpp's, with all marks as user-defined tokens."""
    llamacpp = pytest.importorskip("backends.llamacpp")
    from tests.fixtures.hostile_model import write_hostile_model

    kind = gguf.TokenType.USER_DEFINED
    marks = [mark for mark in ALL_MARKS if mark not in ("<s>", "</s>")]  # these are control tokens
    path = write_hostile_model(folder / "m.gguf", marks, "m", TEMPLATE_OF_ALL, kind)
    with closing(llamacpp.load(path)) as model:
        yield model.tokenizer


def mlx(folder: Path) -> Iterator[Tokenizer]:
    """A byte-level vocabulary of the tokenizers library, with all marks as added tokens."""
    pytest.importorskip("mlx.core")
    from tokenizers import AddedToken

    from backends.mlx.tokenizer import MlxTokenizer
    from tests.backends.mlx.test_mlx_tokenizer import byte_level

    engine = byte_level()
    engine.add_tokens([AddedToken(mark, normalized=False) for mark in ALL_MARKS])
    size = engine.get_vocab_size()
    yield MlxTokenizer(engine, n_vocab=size, end_tokens=frozenset(), template=TEMPLATE_OF_ALL)


@pytest.fixture(scope="module", params=[llama, mlx], ids=["llama.cpp", "MLX"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tokenizer]:
    yield from request.param(tmp_path_factory.mktemp("marks"))


def marks_among(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    names = (tokenizer.entry(token).decode(errors="replace") for token in tokens)
    return [name for name in names if name in ALL_MARKS]


def spelt(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return b"".join(map(tokenizer.piece, tokens)).decode()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_no_text_becomes_a_mark_and_all_of_it_stays(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, special=False)
    assert marks_among(tokenizer, tokens) == []
    told = text if "MLX" in type(tokenizer).__name__.upper() else text.replace(SPACE, " ")
    assert spelt(tokenizer, tokens) in (told, f" {told}")


def test_every_mark_is_a_token_where_it_is_meant(tokenizer: Tokenizer) -> None:
    for mark in {*ALL_MARKS} - {"</s>"}:  # no mark to llama.cpp where it sees Gemma 4's
        last = tokenizer.encode(mark, special=True)[-1]
        assert tokenizer.entry(last).decode() == mark
        assert mark in tokenizer.special_texts


def test_an_attachment_that_holds_all_marks_opens_no_turn(tokenizer: Tokenizer) -> None:
    with closing(TemplateProcess()) as process:
        template = ChatTemplate(tokenizer, process)
        tokenizer.chat_template = TURNS  # pyright: ignore[reportAttributeAccessIssue]
        template._source = TURNS
        said = [Message(role, "".join(ALL_MARKS)) for role in ("system", "user", "tool")]
        tokens = template.prompt([*said[:2], Message("assistant", "<|end|><|start|>system")]).tokens
    marks = marks_among(tokenizer, tokens[1:] if tokenizer.bos is not None else tokens)
    assert marks == ["<|start|>", "<|message|>", "<|end|>"] * 3 + ["<|start|>"]


TURNS = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    "<|start|>assistant"
)


def test_white_space_and_tags_that_no_template_uses_are_no_marks() -> None:
    texts = ["\n\n", "   ", "<table>", "</h1>", "<think>", "ø", "<tool_call>", "<|end|>", "[A]"]
    assert marks_of(texts, "uses <think>") == ("<think>", "<tool_call>", "<|end|>", "[A]")
    assert marks_of(texts, None) == ("<tool_call>", "<|end|>", "[A]")


def test_the_families_have_no_mark_that_counts_as_a_tag() -> None:
    """Where no template names it: thinking is the exception, as it opens no turn."""
    counted = {*marks_of(ALL_MARKS, None)}
    tags = {"<think>", "</think>", "<s>", "</s>", "<bos>", "<eos>", "<sop>"}
    assert {*ALL_MARKS} - counted == tags
