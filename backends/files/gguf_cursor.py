"""Bounded reader of the values in a GGUF header."""

import mmap
import re
import struct

MAX_ARRAY = 1 << 24
MAX_STRING = 1 << 24
MAX_TEXT = 1 << 25
"""Most bytes of text kept from one header, names and values together."""

MAX_KEPT_LIST = 1024
"""Longest list of numbers kept, such as heads by layer; of longer ones only the length."""

MAX_KEPT_NUMBERS = 1 << 16

SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i",
    6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
_BYTE_TOKEN = re.compile(rb"<0x([0-9A-F]{2})>")


Number = int | float | bool
Scalar = str | Number


class Cursor:
    """Reads little-endian values from a buffer, never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.text_left = MAX_TEXT
        self.numbers_left = MAX_KEPT_NUMBERS
        self.spelled: set[int] = set()

    def take(self, form: str) -> Scalar:
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def count(self, limit: int, what: str) -> int:
        value = int(self.take("<Q"))
        if value > limit:
            raise ValueError(f"{what} of {value:,}")
        return value

    def skip(self, size: int) -> None:
        if self.at + size > len(self.data):
            raise ValueError("it ends inside its header")
        self.at += size

    def string(self) -> str:
        size = self.count(MAX_STRING, "a text length")
        start = self.at
        self.skip(size)
        self.text_left -= size
        if self.text_left < 0:
            raise ValueError(f"more than {MAX_TEXT:,} bytes of text")
        return self.data[start : self.at].decode("utf-8", errors="replace")

    def numbers(self) -> tuple[Number, ...]:
        """List of numbers at the cursor, () if it is too long to keep. The cursor stays."""
        kind, size = struct.unpack_from("<IQ", self.data, self.at)
        if kind not in SCALARS or size > min(MAX_KEPT_LIST, self.numbers_left):
            return ()
        self.numbers_left -= size
        form = f"<{size}{SCALARS[kind][1]}"
        return struct.unpack_from(form, self.data, self.at + struct.calcsize("<IQ"))

    def skip_texts(self, count: int, *, are_tokens: bool) -> None:
        """Skip texts, of which files have hundreds of thousands; note bytes that have a token."""
        data, at, unpack = self.data, self.at, struct.Struct("<Q").unpack_from
        for _ in range(count):
            (size,) = unpack(data, at)
            if size > MAX_STRING:
                raise ValueError(f"a text length of {size:,}")
            if are_tokens and size in (1, 6):
                self._note_byte(data[at + 8 : at + 8 + size])
            at += 8 + size
        self.skip(at - self.at)

    def _note_byte(self, token: bytes) -> None:
        spelled = _BYTE_TOKEN.fullmatch(token)
        if spelled:
            self.spelled.add(int(spelled[1], 16))
        elif len(token) == 1:
            self.spelled.add(token[0])

    def skip_array(self, depth: int = 0, *, are_tokens: bool = False) -> int:
        """Skip an array and return its length."""
        kind = int(self.take("<I"))
        size = self.count(MAX_ARRAY, "a list length")
        if kind == ARRAY and depth > 2:
            raise ValueError("lists nested too deep")
        if kind in SCALARS:
            self.skip(size * struct.calcsize(SCALARS[kind]))
        elif kind == STRING:
            self.skip_texts(size, are_tokens=are_tokens)
        elif kind == ARRAY:
            for _ in range(size):
                self.skip_array(depth + 1)
        else:
            raise ValueError(f"an unknown value type {kind}")
        return size
