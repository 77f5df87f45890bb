"""Images in prompts: read from files, named by markers in texts, and as tokens of a context.

A message's text holds a marker in the place of each image, so that whatever changes texts need not
know of images. A prompt has a token for each position of an image, numbered from IMAGE_TOKENS on
and made from the image's digest: equal prompts with equal images are equal lists of numbers, to the
prompt cache, saved states and reading ahead. Only contexts of models that see are given them.
"""

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from backends.base.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

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
    """An image as its file; of an animation, the first picture. digest: SHA-256 of the file.

    width, height: as it is seen, which is upright.
    """

    data: bytes
    kind: str
    width: int
    height: int
    digest: str

    @property
    def marker(self) -> str:
        _known.pop(self.digest, None)
        while sum(len(one.data) for one in _known.values()) > _MOST_KEPT_BYTES:
            del _known[next(iter(_known))]
        _known[self.digest] = self
        return f"{_EDGE}image {self.digest}{_EDGE}"

    def __str__(self) -> str:
        return f"{self.kind}, {self.width:,} × {self.height:,} pixels"

    def picture(self, most: tuple[int, int] | None = None) -> "Picture":
        """Its pixels in RGB, upright and on white. most: width and height that it is made to fit.

        Raises:
            UsageError: it is damaged.
        """
        import PIL.Image
        import PIL.ImageOps

        try:
            with _opened(self.data, self.kind) as file:
                file.draft("RGB", most)
                found = PIL.ImageOps.exif_transpose(file) if self.kind == "JPEG" else file.copy()
            if found.mode.startswith("I"):  # grey of 16 bits
                found = found.point(lambda level: level / 256).convert("L")
            if found.has_transparency_data:
                white = PIL.Image.new("RGBA", found.size, "white")
                found = PIL.Image.alpha_composite(white, found.convert("RGBA"))
            if most is not None:
                found.thumbnail(most)
            return found.convert("RGB")
        except Exception as error:  # whatever a decoder meets in what others wrote
            raise UsageError(f"the image is a damaged {self.kind} file", str(error)) from error


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
    if kind not in _READ:
        raise UsageError(f"{name} is {kind or 'no image'}; images are {', '.join(_READ)} here")
    if len(data) > MOST_IMAGE_BYTES:
        raise UsageError(f"{name} is larger than {MOST_IMAGE_BYTES // 1_000_000} MB")
    try:
        with _opened(data, kind) as file:
            width, height = file.size
            if kind == "JPEG" and file.getexif().get(_ORIENTATION, 1) in _ON_THE_SIDE:
                width, height = height, width
    except Exception as error:  # as above
        raise UsageError(f"{name} is a damaged {kind} file") from error
    if width * height > _MOST_PIXELS:
        raise UsageError(f"{name} has over {_MOST_PIXELS // 1_000_000} million pixels")
    if max(width, height) > _MOST_ASPECT * min(width, height):
        raise UsageError(f"{name} is over {_MOST_ASPECT} times as long as it is wide")
    return Image(data, kind, width, height, hashlib.sha256(data).hexdigest())


_READ = ("PNG", "JPEG", "GIF", "WebP", "BMP")
_ORIENTATION, _ON_THE_SIDE = 0x0112, (5, 6, 7, 8)
"""The EXIF tag, and where width and height of the file change places."""


def _opened(data: bytes, kind: str) -> "Picture":
    """A file of an image, of which nothing but the head is read yet."""
    import PIL.Image

    PIL.Image.MAX_IMAGE_PIXELS = None  # image_of bounds them before any is read
    warnings.filterwarnings("ignore", module="PIL")  # of odd tags: they would be on the screen
    return PIL.Image.open(BytesIO(data), formats=[kind.upper()])


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
