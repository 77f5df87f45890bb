"""The tokenizer of a GGUF file, rebuilt: the same as llama.cpp's on varied text."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="MLX is not installed")
pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

import gguf
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models

from app.builtin_prompts import built_in_prompts
from backends.base import ModelError, Tokenizer
from backends.files.gguf_header import read_header
from backends.files.mlx_gguf import PRE_TOKENIZERS
from backends.llamacpp.loading import vocabulary
from backends.mlx.gguf import read_file, tokenizer
from backends.mlx.tokenizer import MlxTokenizer, read_tokenizer
from models.metadata.identity import require_same_vocabulary
from scripts.models.make_mlx_folder import write_tokenizer

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
    path = written(tmp_path / "vocabulary.gguf", texts, request.param)
    with ExitStack() as stack:
        theirs = stack.enter_context(vocabulary(path)).tokenizer
        yield tokenizer(read_header(path), texts), theirs


def written(path: Path, texts: dict[str, Any], cutter: str, **more: int) -> Path:
    """A file of a vocabulary alone; more: further tokens by their part, such as eot."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cutter)
    writer.add_token_list(texts["tokenizer.ggml.tokens"])
    writer.add_token_merges(texts["tokenizer.ggml.merges"])
    writer.add_token_types(texts["tokenizer.ggml.token_type"].tolist())
    for part, token in {"bos": 1, "eos": 2, **more}.items():
        writer.add_uint32(f"tokenizer.ggml.{part}_token_id", token)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def from_folder(demo_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The bundled model's, as an MLX folder of it has it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(demo_file, folder)
    return read_tokenizer(folder, {}, read_header(demo_file).n_vocab)


def test_the_same_token_ids(both: tuple[Tokenizer, Tokenizer]):
    ours, theirs = both
    for special in (True, False):
        for text in varied_texts():
            ids = ours.encode(text, special=special)
            assert ids == theirs.encode(text, special=special), (text, special)
    assert (ours.bos, ours.bos_text, ours.eos) == (theirs.bos, theirs.bos_text, theirs.eos)


def test_every_token_of_the_bundled_model(demo_file: Path, ours: Tokenizer):
    with vocabulary(demo_file) as found:
        theirs = found.tokenizer
        assert ours.n_vocab == theirs.n_vocab
        for token in range(ours.n_vocab):
            assert ours.piece(token) == theirs.piece(token)
            assert ours.is_padding(token) == theirs.is_padding(token)
        assert set(ours.special_texts) == set(theirs.special_texts)
        assert ours.end_tokens == theirs.end_tokens


def test_a_vocabulary_is_the_same_through_both_engines(
    demo_file: Path, ours: Tokenizer, from_folder: Tokenizer
):
    with vocabulary(demo_file) as found:
        same = (ours, from_folder, found.tokenizer)
        for one, other in combinations(same, 2):
            require_same_vocabulary(one, other, "the other")
            assert one.end_tokens == other.end_tokens
        entries = [found.tokenizer.entry(token) for token in range(ours.n_vocab)]
        assert len(set(entries)) == len(entries)
        assert {"\u00e9".encode(), b" the", b"<|im_end|>"} < set(entries)


ENDS = {
    "chat": ("<|eot_id|>", "<|eom_id|>", "<|end|>", "</s>", "<EOT>", "[EOS]", "<end_of_utterance>"),
    "code": ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>", "<|end|>"),
    "parts of a reply": ("<|return|>", "<|call|>", "<|end|>", "<|channel|>"),
    "calls": ("<|calls|>", "<|flush|>", "<|end|>"),
    "tools": ("<|tool_response>", "</s>", "<turn|>", "<eos>"),
    "none of these": ("<|end", "|end|>", "<|END|>", "<|user|>"),
}


@pytest.mark.parametrize("names", ENDS.values(), ids=ENDS)
def test_replies_end_at_the_same_tokens(
    names: tuple[str, ...], texts: dict[str, Any], tmp_path: Path
):
    tokens = list(texts["tokenizer.ggml.tokens"])
    tokens[4 : 4 + len(names)] = names
    changed = texts | {"tokenizer.ggml.tokens": tokens}
    path = written(tmp_path / "vocabulary.gguf", changed, "smollm", eot=15)
    with vocabulary(path) as found:
        ours = tokenizer(read_header(path), changed)
        assert ours.end_tokens == found.tokenizer.end_tokens
        assert {0, 2, 15} <= ours.end_tokens
        assert ours.eos == 2


def test_lone_bytes_and_spaces_of_sentencepiece(tiny_llama: Callable[..., Path]):
    """Its files run with llama.cpp alone, beside folders of the same vocabulary."""
    path = tiny_llama()
    listed = [token.decode() for token in gguf_tokens(path)]
    engine = Engine(models.BPE({text: n for n, text in enumerate(listed)}, [], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    engine.add_special_tokens(["<unk>", "<s>", "</s>"])
    ours = MlxTokenizer(engine, n_vocab=len(listed), end_tokens=frozenset({2}), template=None)
    with vocabulary(path) as found:
        require_same_vocabulary(found.tokenizer, ours, "the folder")
        entries = [found.tokenizer.entry(token) for token in range(ours.n_vocab)]
    assert entries[:4] == [b"<unk>", b"<s>", b"</s>", b"<0x00>"]
    assert {b" ", b"a", b"<0x20>"} < set(entries)


def gguf_tokens(path: Path) -> list[bytes]:
    field = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"]
    return [bytes(field.parts[part]) for part in field.data]


def test_a_special_token_is_only_made_where_it_is_meant(ours: Tokenizer):
    assert ours.encode("<|im_end|>", special=True) == [2]
    assert 2 not in ours.encode("<|im_end|>", special=False)


def test_the_chat_template_is_that_of_the_file(ours: Tokenizer, texts: dict[str, Any]):
    assert ours.chat_template == texts["tokenizer.chat_template"]
    assert ours.eos == 2
    assert ours.bos is None


def test_a_list_of_kinds_that_is_too_short(demo_file: Path, texts: dict[str, Any]):
    damaged = texts | {"tokenizer.ggml.token_type": texts["tokenizer.ggml.token_type"][:-1]}
    with pytest.raises(ModelError, match="type"):
        tokenizer(read_header(demo_file), damaged)
