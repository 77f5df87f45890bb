"""Models read from disk: what is told of one before, and that it is agreed to once."""

import os
from pathlib import Path

import pytest

from app.loading.pass_time import Contender, Split
from app.loading.session_options import SessionOptions
from app.loading.streaming import (
    AgreedModels,
    Outlook,
    Share,
    StreamOfferError,
    plan_alone,
    streaming_rate,
)
from app.paths import Paths
from backends.base import OutOfMemoryError
from backends.streaming.mapped_file import DiskSpeed
from models.bounded_files import read_object
from models.metadata.memory_bill import facts_of
from models.reference import Reference

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
    told = Outlook(SHARE, DISK, 1.87, Split(drafter, 3.44)).words
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


def test_an_agreement_is_recorded_for_one_model(tmp_path: Path) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    assert not agreed.has(one)
    agreed.add(one)
    assert agreed.has(one)
    assert not agreed.has(other)
    assert read_object(agreed.file)["models"] == [os.path.realpath(one)]


@pytest.mark.parametrize("name", ["file/agreed.json", "folder"])
def test_a_record_that_cannot_be_written_does_not_ask_again(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the place of a folder")
    (tmp_path / "folder").mkdir()
    agreed = AgreedModels(tmp_path / name)
    assert not agreed.has(tmp_path / "model.gguf")
    agreed.add(tmp_path / "model.gguf")
    assert agreed.has(tmp_path / "model.gguf")
    assert not agreed.has(tmp_path / "other.gguf")


def test_what_was_recorded_is_forgotten_with_the_record(tmp_path: Path) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    agreed.add(tmp_path / "model.gguf")
    agreed.file.unlink()
    assert not agreed.has(tmp_path / "model.gguf")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"schema": 1, "models": 7}', b"[" * 100_000])
def test_a_damaged_record_asks_again(tmp_path: Path, content: bytes) -> None:
    agreed = AgreedModels(tmp_path / "agreed.json")
    agreed.file.write_bytes(content)
    assert not agreed.has(tmp_path / "model.gguf")
    agreed.add(tmp_path / "model.gguf")
    assert agreed.has(tmp_path / "model.gguf")


@pytest.mark.usefixtures("llamacpp")
def test_it_streams_only_if_it_has_to_and_may(demo_file: Path, home: Path) -> None:
    paths, facts = Paths.of_this_user(), facts_of(demo_file)
    reference = Reference("demo", demo_file)
    small, large = round(1.45 * demo_file.stat().st_size), 10 * demo_file.stat().st_size

    def planned(stream: str, free: int | None = small) -> int | None:
        options = SessionOptions("demo", ctx=512, stream=stream)
        return plan_alone(reference, facts, options, paths, 512, free).lock_bytes

    assert planned("on", large) is None
    assert planned("on", None) is None
    held = planned("on")
    assert held is not None
    assert 0 < held < small
    for stream, is_offered in (("auto", True), ("off", False)):
        with pytest.raises(OutOfMemoryError) as refused:
            planned(stream)
        assert ("--stream on" in refused.value.remedy) is is_offered
    AgreedModels(paths.agreed_models).add(demo_file)
    assert planned("auto") == held
