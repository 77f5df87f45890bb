"""What is told of a model before it streams, and the record of the user's agreement."""

from pathlib import Path

import pytest

from app.loading.pass_time import Contender, Split
from app.loading.streaming import AgreedModels, Outlook, Share, StreamOfferError, streaming_rate
from backends.base import OutOfMemoryError
from backends.streaming.disk_speed import DiskSpeed

SHARE = Share(600_000_000, 590_000_000)
DISK = DiskSpeed(1.1e9, "measured")


def test_the_outlook_names_both_shares_and_the_speed() -> None:
    words = Outlook(SHARE, DISK, 1.87).words
    assert words == (
        "0.6 GB of its weights are held in memory, 0.6 GB are read from disk for each token at "
        "1.1 GB/s: about 1.9 tok/s"
    )


def test_a_speed_that_was_not_measured_is_not_claimed() -> None:
    assert "tok/s" not in Outlook(SHARE).words
    assert "cannot be measured" in Outlook(SHARE).words


def test_drafted_speed_is_told_only_where_it_is_known() -> None:
    drafter = Contender("135m", 92_000_000, 0.006, 0.7)
    told = Outlook(SHARE, DISK, 1.87, Split(drafter, 8, 3.44)).words
    assert told.endswith("about 1.9 tok/s, with 135m drafting about 3.4 tok/s")
    unknown = Outlook(SHARE, DISK, 1.87, None, "a draft takes 0.1 s").words
    assert unknown.endswith("about 1.9 tok/s; a draft takes 0.1 s")


@pytest.mark.parametrize(
    ("rate", "words"),
    [(12.34, "about 12 tok/s"), (1.0, "about 1 tok/s"), (0.043, "about 23 s a token")],
)
def test_slow_rates_are_told_by_the_token(rate: float, words: str) -> None:
    assert streaming_rate(rate) == words


def test_a_refusal_in_scripts_names_the_option() -> None:
    refusal = OutOfMemoryError("big needs 1.2 GB", "0.9 GB are free", "Choose a smaller model.")
    offer = StreamOfferError(refusal, "big", Path("big.gguf"), Outlook(SHARE, DISK, 1.87))
    assert offer.summary == refusal.summary
    assert "--stream on" in offer.remedy
    assert "Choose a smaller model." in offer.remedy


def test_an_agreement_is_kept_for_one_model(tmp_path: Path) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    assert not agreed.has(one)
    agreed.add(one)
    assert agreed.has(one)
    assert not agreed.has(other)
    (tmp_path / "damaged.json").write_text('{"schema": 1, "models": 7}')
    assert not AgreedModels(tmp_path / "damaged.json").has(one)
