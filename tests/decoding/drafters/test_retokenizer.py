"""The drafter's tokens always read as the target's text, however that grows or is taken back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.cross_vocabulary.follower import Retokenizer
from decoding.drafters.cross_vocabulary.vocabularies import Speller, TokenBytes
from tests.fixtures.tokenizers import ToyTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
OURS = [*BYTES, b" the", b"he", b" qu", b"ick", b"\n\n", b" \xf0\x9f", b"\x99\x82", b"", b""]
START, UNKNOWN = len(OURS) - 2, len(OURS) - 1
THEIRS = [*BYTES, b" quick", b"th", b"e ", b"e\n", "\U0001f642".encode(), b"\x82 t", b""]
OPENING, SAME = len(THEIRS) - 1, 7

tokens = st.sampled_from([*b" theq.\n\xf0", *range(256, len(OURS))])
histories = st.lists(
    st.tuples(st.floats(0, 1), st.booleans(), st.lists(tokens, max_size=150)), max_size=12
)


OUR_PIECES, THEIR_PIECES = (TokenBytes.of(ToyTokenizer(pieces)) for pieces in (OURS, THEIRS))


def make() -> tuple[Retokenizer, ToyTokenizer]:
    drafter = ToyTokenizer(THEIRS)
    speller = Speller(drafter, THEIR_PIECES)
    return Retokenizer(OUR_PIECES, speller, {START: [SAME]}, [OPENING]), drafter


def text_of(history: list[int]) -> bytes:
    return b"".join(bytes([SAME]) if token == START else OURS[token] for token in history)


@given(moves=histories)
@settings(max_examples=150)
def test_the_tokens_read_as_the_text_after_every_move(
    moves: list[tuple[float, bool, list[int]]],
):
    retokenizer, _ = make()
    history: list[int] = []
    held: list[int] = [OPENING]
    for kept, starts_again, added in moves:
        if starts_again:
            history = history[: round(kept * len(history))] + added
            standing = retokenizer.begin(history)
            assert retokenizer.tokens[:standing] == held[:standing]
        else:
            history = history + added
        standing = retokenizer.follow(history)
        assert retokenizer.tokens[:standing] == held[:standing]
        assert retokenizer.followed == len(history)
        assert retokenizer.tokens[0] == OPENING
        assert b"".join(THEIRS[token] for token in retokenizer.tokens) == text_of(history)
        held = list(retokenizer.tokens)


def test_growing_by_one_token_tokenizes_the_end_alone():
    retokenizer, drafter = make()
    target = ToyTokenizer(OURS)
    text = target.encode("the quick brown fox jumps over the lazy dog. " * 100, special=False)
    retokenizer.follow(text[:-200])
    most = 0
    for end in range(len(text) - 199, len(text) + 1):
        drafter.encoded = 0
        retokenizer.follow(text[:end])
        most = max(most, drafter.encoded)
    assert most < 600
    whole, _ = make()
    whole.follow(text)
    assert retokenizer.tokens == whole.tokens


def test_a_text_without_words_gets_marks_all_the_same():
    retokenizer, drafter = make()
    history = [ord("x")] * 3000
    for end in range(1, len(history) + 1, 3):
        drafter.encoded = 0
        retokenizer.follow(history[:end])
        assert drafter.encoded < 5000


def test_what_was_taken_back_is_tokenized_from_the_mark_before():
    retokenizer, drafter = make()
    first = [START, *b"the quick brown fox"] * 50
    retokenizer.follow([*first, *b" runs"])
    drafter.encoded = 0
    retokenizer.begin([*first, *b" sits"])
    retokenizer.follow([*first, *b" sits"])
    assert drafter.encoded < 100
    assert b"".join(THEIRS[token] for token in retokenizer.tokens).endswith(b"fox sits")
