"""The tokenizer of a GGUF file, rebuilt: the same as llama.cpp's on varied text."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")
pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

import gguf

from app.prompts import built_in_prompts
from backends.base import ModelError, Tokenizer
from backends.gguf_header import read_header
from backends.llamacpp.vocabulary import vocabulary
from backends.mlx.gguf import read_file, tokenizer
from backends.mlx_gguf import PRE_TOKENIZERS

TEXTS = (
    "",
    " ",
    "\n",
    "a  b",
    " a\t\tb\n\n  c",
    "   before and after   ",
    "\r\n\r\n x",
    "In 1984 it's 3.14159 or 12,345,678 people's",
    "I'LL we'Ve don'T 'twas",
    "½ ² Ⅷ ٣٤ \u0967\u0968",
    "naïve café über straße e\u0301",
    "日本語のテキスト。中文",
    "Привет, мир! שלום",
    "emoji 😀👩\u200d👩\u200d👧 ok",
    "def f(x):\n    return x**2  # squared\n\n\n",
    "http://example.org/z?a=1&b=2 !!!???...",
    "a\u00a0b\u3000c\u2028d \x00\x01",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><|im_",
)
LETTERS = "ab cD'sstT12 \n\t\r.,!<|>_éß日😀½\u0301\u00a0'LLre"


def varied_texts() -> Iterator[str]:
    """Those above, the built-in prompts, and random ones of characters that meet rarely."""
    yield from TEXTS
    yield from (prompt.text for prompt in built_in_prompts())
    chance = random.Random(0)
    for _ in range(500):
        yield "".join(chance.choices(LETTERS, k=chance.randint(1, 40)))


@pytest.fixture(scope="module")
def texts(demo_file: Path) -> dict[str, Any]:
    """The lists of the bundled model's vocabulary."""
    return read_file(demo_file)[1]


@pytest.fixture(scope="module")
def ours(demo_file: Path, texts: dict[str, Any]) -> Tokenizer:
    return tokenizer(read_header(demo_file), texts)


@pytest.fixture(params=PRE_TOKENIZERS)
def both(
    request: pytest.FixtureRequest, texts: dict[str, Any], tmp_path: Path
) -> Iterator[tuple[Tokenizer, Tokenizer]]:
    """The bundled vocabulary with each pre-tokenizer: ours, and llama.cpp's."""
    path = tmp_path / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(request.param)
    writer.add_token_list(texts["tokenizer.ggml.tokens"])
    writer.add_token_merges(texts["tokenizer.ggml.merges"])
    writer.add_token_types(texts["tokenizer.ggml.token_type"].tolist())
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with ExitStack() as stack:
        theirs = stack.enter_context(vocabulary(path)).tokenizer
        yield tokenizer(read_header(path), texts), theirs


def test_the_same_token_ids(both: tuple[Tokenizer, Tokenizer]):
    ours, theirs = both
    for special in (True, False):
        for text in varied_texts():
            ids = ours.encode(text, special=special)
            assert ids == theirs.encode(text, special=special), (text, special)
    assert (ours.bos, ours.eos) == (theirs.bos, theirs.eos)


def test_every_token_of_the_bundled_model(demo_file: Path, ours: Tokenizer):
    with vocabulary(demo_file) as found:
        theirs = found.tokenizer
        assert ours.n_vocab == theirs.n_vocab
        for token in range(ours.n_vocab):
            assert ours.piece(token) == theirs.piece(token)
            assert ours.is_padding(token) == theirs.is_padding(token)
        assert set(ours.special_texts) == set(theirs.special_texts)
        assert ours.end_tokens <= theirs.end_tokens


def test_a_special_token_is_only_made_where_it_is_meant(ours: Tokenizer):
    assert ours.encode("<|im_end|>", special=True) == [2]
    assert 2 not in ours.encode("<|im_end|>", special=False)


def test_the_chat_template_is_that_of_the_file(ours: Tokenizer, texts: dict[str, Any]):
    assert ours.chat_template == texts["tokenizer.chat_template"]
    assert ours.eos == 2
    assert ours.bos is None


def test_a_list_of_kinds_that_is_too_short(demo_file: Path, texts: dict[str, Any]):
    damaged = texts | {"tokenizer.ggml.token_type": texts["tokenizer.ggml.token_type"][:-1]}
    with pytest.raises(ModelError, match="kind"):
        tokenizer(read_header(demo_file), damaged)
