"""Bytes as text, in whichever encoding they are."""

import re
from collections.abc import Iterator

import regex

from backends.base.safe_files import NotTextError, text_of

_BOMS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_BINARY = re.compile(rb"[\0-\x06\x0e-\x19\x1c-\x1f]")
"""Bytes that no text has in an encoding that extends ASCII."""

_LIKELY = (
    "cp1252", "cp1250", "cp1251", "koi8_r", "cp932", "gb18030", "euc_jp", "big5", "cp949",
    "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "tis_620",
)  # fmt: skip
"""Encodings of files; of two that fit as well the earlier is the likelier."""

_UNLIKELY = regex.compile(
    r"\p{Ll}\p{Lu}"  # an upper case letter within a word
    r"|[\u0080-\u024f\u2010-\u203a]{3}|[\uff61-\uff9f]"  # rows of accents, half-width katakana
    r"|[A-Za-z][\u0370-\u04ff]|[\u0370-\u04ff][A-Za-z]"  # scripts mixed in a word
)
_SAMPLE_BYTES = 1 << 16


def decoded(data: bytes) -> str:
    r"""A text with \n for \r\n.

    By a byte order mark; else UTF-8, a few bytes of which may be damaged; else by its letters.

    Raises:
        NotTextError: the bytes are no text.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            text = _in(encoding, data)
            if text is None or "\0" in text:
                raise NotTextError("is not text", f"it is marked as {encoding}, and is not")
            return text
    try:
        return text_of(data)
    except NotTextError as error:
        if binary := _BINARY.search(data):
            where = f"byte {data[binary.start()]:#04x} at position {binary.start():,}"
            raise NotTextError("is not text", where) from error
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    if text.count("\ufffd") * 20 < len(text) - len(text.encode("ascii", "ignore")):
        return text
    for encoding in _fitting(data):
        if (text := _in(encoding, data)) is not None:
            return text
    raise NotTextError("is not text", "no known encoding fits its bytes")


def _in(encoding: str, data: bytes) -> str | None:
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def _fitting(data: bytes) -> Iterator[str]:
    """Encodings in which some bytes are words, the likeliest first.

    A detector rates them. Where several seem right, letters that are not together in words tell,
    then how frequent letters are in a language, then how common the encoding is.
    """
    from charset_normalizer import from_bytes

    first = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, first.start() if first else 0) + 1
    sample = data[start : start + _SAMPLE_BYTES]
    if len(sample) == _SAMPLE_BYTES:  # to the end of a line, so that no character is cut
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    rated: list[tuple[float, int, float, int]] = []
    for match in from_bytes(sample, cp_isolation=list(_LIKELY)):
        unlikely = len(_UNLIKELY.findall(str(match)))
        places = [_LIKELY.index(one) for one in match.could_be_from_charset if one in _LIKELY]
        rated += [(round(match.chaos, 1), unlikely, -match.coherence, place) for place in places]
    return (_LIKELY[place] for *_, place in sorted(rated))
