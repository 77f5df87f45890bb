"""Tokenizers of MLX folders: pieces as the library decodes them, and settings of all kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters

from backends.base import InfillTokens, ModelError
from backends.mlx.tokenizer import MlxTokenizer, read_engine, read_tokenizer

SPACE = "\u2581"
TEXTS = ("hello world", "  two  spaces ", "é\n🙂 tab\t", "hello<tool>world", "日本 hello")
WORDS = ("he", "ll", "hell", "hello", f"{SPACE}w", "or", "ld", "orld", f"{SPACE}world")
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (SPACE, "w"), ("o", "r"), ("l", "d"),
          ("or", "ld"), (f"{SPACE}w", "orld")]  # fmt: skip


def sentencepiece_like(decoder: Any, splitter: Any = None, normalizer: Any = None) -> Tokenizer:
    """Control tokens, every byte, letters and words with a mark for a space; bytes for the rest."""
    letters = [SPACE, *"abcdefghijklmnopqrstuvwxyz<>"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *WORDS]
    vocabulary = {text: number for number, text in enumerate(texts)}
    model = models.BPE(vocabulary, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    engine = Tokenizer(model)
    engine.decoder = decoder
    if splitter is not None:
        engine.pre_tokenizer = splitter
    if normalizer is not None:
        engine.normalizer = normalizer
    engine.add_special_tokens([AddedToken(text, normalized=False) for text in texts[:3]])
    engine.add_tokens([AddedToken("<tool>", normalized=False)])
    return engine


def byte_level() -> Tokenizer:
    alphabet = sorted(splitters.ByteLevel.alphabet())
    engine = Tokenizer(models.BPE({text: number for number, text in enumerate(alphabet)}, []))
    engine.pre_tokenizer = splitters.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(["<|end|>"])
    engine.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("ein Wört")])
    return engine


def llama_2() -> Tokenizer:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return sentencepiece_like(
        decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)]), normalizer=normalizer
    )


def gemma() -> Tokenizer:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return sentencepiece_like(decoders.Sequence(steps), normalizer=normalizers.Replace(" ", SPACE))


def metaspace() -> Tokenizer:
    steps = [decoders.ByteFallback(), decoders.Metaspace(SPACE, "first")]
    return sentencepiece_like(decoders.Sequence(steps), splitters.Metaspace(SPACE, "first"))


def of(engine: Tokenizer, n_vocab: int = 400) -> MlxTokenizer:
    return MlxTokenizer(engine, n_vocab=n_vocab, end_tokens=frozenset(), template=None)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", [byte_level, llama_2, gemma, metaspace])
def test_pieces_one_by_one_are_the_text_of_the_library(
    make: Callable[[], Tokenizer], text: str
) -> None:
    engine = make()
    tokenizer = of(engine)
    tokens = tokenizer.encode(text, special=False)
    decoded = engine.decode(tokens)
    pieces = b"".join(map(tokenizer.piece, tokens)).decode()
    if make in (byte_level, gemma):
        assert pieces == decoded == text
    else:  # the library drops the space that these put before every text
        assert pieces == f" {decoded}"


@pytest.mark.parametrize("make", [byte_level, llama_2, gemma, metaspace])
def test_a_users_text_never_becomes_a_control_token(make: Callable[[], Tokenizer]) -> None:
    tokenizer = of(make())
    for text in tokenizer.special_texts:
        control = tokenizer.encode(text, special=True)[-1]
        assert tokenizer.piece(control) in (b"", text.encode())  # of one that the user defined
        assert tokenizer.entry(control) == text.encode()
        assert control not in tokenizer.encode(text, special=False)


def test_a_lone_byte_is_that_byte_and_odd_names_are_texts() -> None:
    tokenizer = of(gemma())
    tokens = tokenizer.encode("é", special=False)
    assert [tokenizer.piece(token) for token in tokens] == [b"\xc3", b"\xa9"]
    engine = gemma()
    engine.add_tokens(["<0xZZ>"])
    odd = engine.token_to_id("<0xZZ>")
    assert odd is not None
    assert of(engine).piece(odd) == b"<0xZZ>"


def test_rows_past_the_tokenizer_are_padding() -> None:
    engine = gemma()
    known = engine.get_vocab_size()
    tokenizer = of(engine, known + 7)
    padding = [token for token in range(tokenizer.n_vocab) if tokenizer.is_padding(token)]
    assert padding == list(range(known, known + 7))
    assert {tokenizer.piece(token) for token in padding} == {b""}


def test_tokens_that_the_weights_have_no_row_for_are_never_given() -> None:
    """Gemma 3 of 1B has such a token, for pictures."""
    engine = gemma()
    size = engine.get_vocab_size()
    engine.add_special_tokens(["<image>"])
    tokenizer = of(engine, size)
    assert max(tokenizer.encode("a<image>b", special=True)) < size
    assert "<image>" in tokenizer.special_texts


def test_a_tokenizer_set_to_cut_and_fill_up_texts_does_neither(tmp_path: Path) -> None:
    engine = gemma()
    engine.enable_truncation(3)
    engine.enable_padding(length=9, pad_id=0)
    engine.save(str(tmp_path / "tokenizer.json"))
    read = of(read_engine(tmp_path))
    assert len(read.encode("abcdefgh", special=False)) == 8
    assert len(read.encode("ab", special=False)) == 2


def read(folder: Path, n_vocab: int = 400, config: dict[str, Any] | None = None) -> MlxTokenizer:
    return read_tokenizer(folder, config or {}, n_vocab)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gemma().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("one", "one"),
        ([{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}], "one"),
        ({"default": "one", "tool_use": "two"}, "one"),
        ([{"name": "tool_use", "template": "two"}], None),
        ([None, 3, {"name": ["default"]}], None),
        (7, None),
        (None, None),
    ],
)
def test_templates_in_the_settings(folder: Path, given: object, expected: str | None) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": given}))
    assert read(folder).chat_template == expected


def test_templates_in_files_of_their_own(folder: Path) -> None:
    assert read(folder).chat_template is None
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "old"}))
    assert read(folder).chat_template == "old"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "settings"}))
    assert read(folder).chat_template == "settings"
    (folder / "chat_template.jinja").write_text("own")
    assert read(folder).chat_template == "own"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot read"):
        read(folder)


def test_tokens_that_begin_and_end_a_text(folder: Path) -> None:
    plain = read(folder)
    assert (plain.bos, plain.eos, plain.end_tokens) == (None, None, {2})  # </s> by its name
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    assert (read(folder).bos, read(folder).bos_text) == (None, "<s>")
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 9_999, "x"]}))
    named = read(folder, config={"eos_token_id": 1})
    assert (named.bos, named.eos, named.end_tokens) == (1, 2, {1, 2, 5})


def test_a_sentencepiece_model_alone_is_turned_into_one_of_ours(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="it comes with mlx-lm")
    text = tmp_path / "text"
    text.write_text("the cat sat on the mat and the dog ran\nhello world\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "tokenizer"), vocab_size=285,
        model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    settings = {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = read(tmp_path)
    for said in ("the dog", "é 🙂"):
        tokens = tokenizer.encode(said, special=False)
        assert b"".join(map(tokenizer.piece, tokens)).decode() == f" {said}"
    (tmp_path / "tokenizer.model").write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"tokenizer\.model is damaged"):
        read(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        (f"{SPACE}<PRE>", f"{SPACE}<SUF>", f"{SPACE}<MID>"),
        (
            "<\uff5cfim\u2581begin\uff5c>",
            "<\uff5cfim\u2581hole\uff5c>",
            "<\uff5cfim\u2581end\uff5c>",
        ),
    ],
)
def test_tokens_of_a_gap_to_fill_are_known_by_their_names(names: tuple[str, str, str]) -> None:
    def infill(*known: str) -> InfillTokens | None:
        engine = byte_level()
        engine.add_tokens([AddedToken(name, special=False) for name in known])
        n_vocab = engine.get_vocab_size()
        return MlxTokenizer(engine, n_vocab=n_vocab, end_tokens=frozenset(), template=None).infill

    found = infill(*names)
    assert found is not None
    engine = byte_level()
    engine.add_tokens(list(names))
    assert (found.prefix, found.suffix, found.middle) == tuple(map(engine.token_to_id, names))
    assert infill(*names[:2]) is None
    assert infill() is None
