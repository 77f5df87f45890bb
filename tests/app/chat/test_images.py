"""Images of messages: read from files, kept, out of the index, and which are refused."""

import json
import random
import sqlite3
import struct
import zlib
from base64 import b64decode
from contextlib import closing, suppress
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from app.chat.attachments import Attachment, AttachmentKind, as_json, from_json, in_full
from app.chat.named_files import read_file, read_files
from app.cli.terminal.text_input import attached
from app.history import History
from app.history.export import as_markdown, backup, read_backup
from backends.base import UsageError
from backends.base.images import IMAGE_TOKENS, blind, image_of, with_images, without_images
from backends.chat.message import ControlMarks
from tests.fixtures.tiny.projector import picture

FIXTURES = Path(__file__).parents[2] / "fixtures" / "other_programs"
JPEG = b64decode(
    "/9j/4AAQSkZJRgABAQEASABIAAD/2wBDAP//////////////////////////////////////////////////////////////"
    "////////////////////////wgALCAABAAEBAREA/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxA="
)
GIF = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def header(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">II", width, height) + picture(1)[24:29]
    return picture(1)[:12] + head + struct.pack(">I", zlib.crc32(head)) + picture(1)[33:]


def saved(kind: str, *, mode: str = "RGB", **options: object) -> bytes:
    """The upper left 8 by 6 pixels of a picture, its first one red."""
    file = BytesIO()
    shown = PIL.Image.open(BytesIO(picture(1))).crop((0, 0, 8, 6))
    shown.putpixel((0, 0), (255, 0, 0))
    shown.convert(mode).save(file, kind, **options)
    return file.getvalue()


def test_an_image_stands_before_the_question_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    path = tmp_path / "a b.png"
    path.write_bytes(picture(1))
    files, faults = read_files(f'What is @"{path}"?')
    assert not faults
    (one,) = files
    assert (one.kind, one.text) == (AttachmentKind.IMAGE, "PNG, 40 × 30 pixels")
    assert from_json(as_json(files)) == files
    before, seen, after = with_images(in_full("What?", files))
    assert (before, after) == ("a b.png:\n", "\n\nWhat?")
    assert seen == one.image
    assert without_images(in_full("What?", files)) == "a b.png:\n[PNG, 40 × 30 pixels]\n\nWhat?"
    assert attached(path) == one


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (saved("JPEG", mode="CMYK"), "JPEG, 8 × 6 pixels"),
        (GIF, "GIF, 1 × 1 pixels"),
        (saved("WEBP", lossless=True), "WebP, 8 × 6 pixels"),
        (saved("BMP"), "BMP, 8 × 6 pixels"),
        (saved("PNG", mode="P"), "PNG, 8 × 6 pixels"),
    ],
)
def test_further_kinds(data: bytes, facts: str) -> None:
    one = Attachment.of_image("x", data)
    assert one.text == facts
    assert Attachment.of(**one.stored) == one
    assert one.image is not None
    assert one.image.picture().size == (one.image.width, one.image.height)
    if "8 × 6" in facts and not facts.startswith("JPEG"):
        assert one.image.picture().getpixel((0, 0)) == (255, 0, 0)
        assert one.image.picture((4, 4)).size == (4, 3)


def test_a_photo_stands_upright() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # its right side is above
    image = image_of(saved("JPEG", exif=exif, quality=95, subsampling=0), "x")
    assert str(image) == "JPEG, 6 × 8 pixels"
    red, green, blue = np.asarray(image.picture())[0, 5].tolist()
    assert red - green - blue > 100
    odd = b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x02"  # of which Pillow warns
    assert image_of(saved("JPEG", exif=odd), "x").width == 8


def test_what_is_transparent_is_white_and_16_bits_of_grey_keep_their_levels() -> None:
    file = BytesIO()
    PIL.Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(file, "PNG")
    assert image_of(file.getvalue(), "x").picture().getpixel((1, 1)) == (255, 255, 255)
    file = BytesIO()
    PIL.Image.fromarray(np.full((4, 4), 0x8000, np.uint16)).save(file, "PNG")
    assert image_of(file.getvalue(), "x").picture().getpixel((1, 1)) == (128, 128, 128)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\0\0\x18ftypheic", "is HEIF; images are PNG, JPEG, GIF, WebP, BMP here"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "is a damaged WebP file"),
        (b"II*\0" + bytes(20), "is TIFF"),
        (picture(1)[:20], "is a damaged PNG file"),
        (JPEG[:80], "is a damaged JPEG file"),
        (header(0, 9), "is a damaged PNG file"),
        (header(30_000, 30_000), "has over 40 million pixels"),
        (header(5_000, 10), "is over 100 times as long as it is wide"),
        (picture(1) + bytes(20_000_000), "is larger than 20 MB"),
    ],
)
def test_what_cannot_be_seen_is_refused_before_it_is_decoded(
    data: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "some"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=why):
        read_file(str(path))


def test_headers_of_damaged_files_are_read_without_a_fault_of_ours() -> None:
    chance = random.Random(3)
    for whole in (picture(1), JPEG, GIF, saved("WEBP"), saved("BMP")):
        for _ in range(300):
            data = bytearray(whole[: chance.randrange(8, len(whole) + 1)])
            for _ in range(chance.randrange(4)):
                data[chance.randrange(3, len(data))] = chance.randrange(256)
            with suppress(UsageError):
                image = image_of(bytes(data), "x")
                assert image.picture().size == (image.width, image.height)


def test_a_marker_of_an_unknown_image_is_text_and_a_known_one_is_hidden_from_templates() -> None:
    image = image_of(picture(2), "x")
    text = f"a {image.marker} b"
    unknown = text.replace(image.digest, "0" * 64)
    assert with_images(unknown) == [unknown]
    marks = ControlMarks(("<image>",), [text])
    hidden = marks.hide(f"<image>{text}")
    assert "image" not in hidden
    assert [piece for piece, _ in marks.split(hidden)][-2:] == [image, " b"]


def test_drafters_get_prompts_without_images() -> None:
    assert blind([7, 8, IMAGE_TOKENS, IMAGE_TOKENS + 5, 9]) == [7, 8, 7, 7, 9]


def test_a_chat_keeps_images_and_its_index_holds_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    one = Attachment.of_image("frog.png", picture(3))
    stored = one.stored["text"]
    with closing(History(path, repairs=True)) as history:
        chat = history.create("demo", "")
        history.add(chat, "user", "What is @frog.png?", attachments=[one])
        (message,) = history.messages(chat)
        assert message.attachments == (one,)
        assert not history.chats(stored[:40])
        assert not history.chats(stored[8:12])
        assert history.chats("frog")
        assert "[PNG, 40 × 30 pixels]" in as_markdown(history.chat(chat), history.path(chat))
        copied = tmp_path / "copied.json"
        copied.write_text(json.dumps(backup(history, chat)))
        again, _ = read_backup(history, copied, copies=True)
        assert history.messages(again)[0].attachments == (one,)
        history.remove(again)
    with closing(sqlite3.connect(path)) as connection:
        words = connection.execute("SELECT count(*) FROM attached_words_docsize").fetchone()
        assert words == (0,)
        connection.execute("UPDATE attachments SET text = 'damaged'")
        connection.commit()
    with closing(History(path, repairs=True)) as history:
        (message,) = history.messages(chat)
        assert "a damaged image" in in_full(message.text, message.attachments)
