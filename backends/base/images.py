"""Images in prompts: read from files, named by markers in texts, and as tokens of a context.

A message's text holds a marker in the place of each image, so that whatever changes texts need not
know of images. A prompt has a token for each position of an image, numbered from IMAGE_TOKENS on
and made from the image's digest: equal prompts with equal images are equal lists of numbers, to the
prompt cache, saved states and reading ahead. Only contexts of models that see are given them.
"""

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from backends.base.errors import UsageError

IMAGE_TOKENS = 1 << 30
"""Token ids from here on stand for positions of images; no vocabulary is as large."""

MOST_IMAGE_BYTES = 20_000_000
_MOST_PIXELS = 40_000_000
_MOST_ASPECT = 100
_MOST_KEPT_BYTES = 500_000_000
"""Of the images whose markers are known, beside the latest one."""

_EDGE = "\N{OBJECT REPLACEMENT CHARACTER}"
_MARKER = re.compile(rf"({_EDGE}image [0-9a-f]{{64}}{_EDGE})")

NO_PROJECTOR = "there is no projector (an mmproj file) beside it"
NO_MLX = "with MLX it reads text alone here"
"""Why a model sees nothing, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as its file; of an animation, the first picture. digest: SHA-256 of the file."""

    data: bytes
    kind: str
    width: int
    height: int
    digest: str

    @property
    def marker(self) -> str:
        """What stands for the image in a text."""
        _known.pop(self.digest, None)
        while sum(len(one.data) for one in _known.values()) > _MOST_KEPT_BYTES:
            del _known[next(iter(_known))]
        _known[self.digest] = self
        return f"{_EDGE}image {self.digest}{_EDGE}"

    def __str__(self) -> str:
        """Its kind and size, for people."""
        return f"{self.kind}, {self.width:,} × {self.height:,} pixels"


_known: dict[str, Image] = {}
"""Images whose markers were asked for, the latest last."""


def with_images(text: str) -> list[str | Image]:
    """A text in pieces: at odd places the images whose markers are in it."""
    pieces: list[str | Image] = [""]
    for piece in _MARKER.split(text):
        image = _known.get(piece[7:-1]) if piece.startswith(f"{_EDGE}image ") else None
        if image is not None:
            pieces += [image, ""]
        else:
            pieces[-1] = f"{pieces[-1]}{piece}"
    return pieces


def without_images(text: str) -> str:
    """A text for people: what each image in it is."""
    pieces = with_images(text)
    return "".join(piece if isinstance(piece, str) else f"[{piece}]" for piece in pieces)


def blind(tokens: Sequence[int]) -> list[int]:
    """Tokens for who sees no images: the first one, which begins the prompt, stands for those."""
    first = next((token for token in tokens if token < IMAGE_TOKENS), 0)
    return [token if token < IMAGE_TOKENS else first for token in tokens]


def is_image(data: bytes) -> bool:
    """Whether a file is an image by its first bytes, of a kind that can be read or not."""
    return bool(_kind_of(data))


def image_of(data: bytes, name: str) -> Image:
    """The image in a file's contents; name: what an error calls it.

    Raises:
        UsageError: it is too large, damaged, or of a kind that cannot be read; why in a few words.
    """
    kind = _kind_of(data)
    if kind not in _SIZES:
        raise UsageError(f"{name} is {kind or 'no image'}; images are PNG, JPEG or GIF here")
    if len(data) > MOST_IMAGE_BYTES:
        raise UsageError(f"{name} is larger than {MOST_IMAGE_BYTES // 1_000_000} MB")
    try:
        width, height = _SIZES[kind](data)
    except (struct.error, IndexError):
        width = height = 0
    if not (width and height):
        raise UsageError(f"{name} is a damaged {kind} file")
    if width * height > _MOST_PIXELS:
        raise UsageError(f"{name} has over {_MOST_PIXELS // 1_000_000} million pixels")
    if max(width, height) > _MOST_ASPECT * min(width, height):
        raise UsageError(f"{name} is over {_MOST_ASPECT} times as long as it is wide")
    return Image(data, kind, width, height, hashlib.sha256(data).hexdigest())


def _kind_of(data: bytes) -> str:
    """What a file is by its first bytes; "" if that is no image."""
    beginnings = {
        b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF", b"BM": "BMP",
        b"II*\0": "TIFF", b"MM\0*": "TIFF",
    }  # fmt: skip
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp" and data[8:12] in (b"avif", b"heic", b"heix", b"mif1"):
        return "HEIF"
    is_bitmap = data[:2] == b"BM" and data[6:10] == bytes(4)
    found = (kind for start, kind in beginnings.items() if data.startswith(start))
    return next((kind for kind in found if kind != "BMP" or is_bitmap), "")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the frame's header, which follows other segments."""
    at = 2
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:  # padding
            at += 1
        marker, length = struct.unpack_from(">HH", data, at)
        if marker < 0xFF01:
            return 0, 0
        if 0xFFC0 <= marker <= 0xFFCF and marker not in (0xFFC4, 0xFFC8, 0xFFCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length


def _png_size(data: bytes) -> tuple[int, int]:
    return struct.unpack_from(">II", data, 16)


def _gif_size(data: bytes) -> tuple[int, int]:
    return struct.unpack_from("<HH", data, 6)


_SIZES = {"PNG": _png_size, "JPEG": _jpeg_size, "GIF": _gif_size}
