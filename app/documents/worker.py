"""Child process that reads files of other programs, which may be damaged or hostile.

Reads a line of JSON for each file, {"name", "bytes", "page"}, and the bytes of the file; writes a
line {"text", "pages"}, {"picture"} if a page is asked for, or {"error", "why"}. It opens no
connection, starts no process and writes no file; nothing that a file names is followed.
"""

# The libraries are untyped:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false, reportMissingImports=false

import importlib
import io
import json
import os
import posixpath
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

Parts = str | list[str]
"""The text of a file, or that of its pages."""

_PICTURE_PIXELS = 1500


class RefusedFileError(Exception):
    """A file that cannot be read: what it is or lacks, after its name."""


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RefusedFileError(
            "needs a library to be read: pip install specchat[documents]"
        ) from error


# Kinds


def _pdf(data: bytes) -> Parts:
    document = _opened_pdf(data)
    texts = [document[number].get_textpage().get_text_bounded() for number in range(len(document))]
    pages = [re.sub("[\ufffe\x02]\r?\n?", "", text).replace("\r\n", "\n") for text in texts]
    if not "".join(pages).strip():
        raise RefusedFileError("has no text: a scan; a model that sees images can read its pages")
    return pages


def _opened_pdf(data: bytes) -> Any:
    pdfium = _library("pypdfium2")
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise RefusedFileError("is encrypted") from error
        raise


def _picture(data: bytes, page: int) -> bytes:
    """A page, from 1, as a PNG picture."""
    document = _opened_pdf(data)
    if not 0 < page <= len(document):
        raise RefusedFileError(f"has no page {page}")
    shown = document[page - 1]
    scale = _PICTURE_PIXELS / max(*shown.get_size(), 1)
    picture = io.BytesIO()
    shown.render(scale=scale).to_pil().save(picture, "PNG")
    return picture.getvalue()


def _markdown(html: str | bytes) -> str:
    text = _library("markdownify").markdownify(
        html,
        heading_style="ATX",
        bullets="-",
        strip=["img"],
        escape_asterisks=False,
        escape_underscores=False,
        wrap=True,
        wrap_width=None,  # lines end where paragraphs do
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _html(data: bytes) -> Parts:
    return _markdown(data) or data.decode(errors="replace")  # a script writes its text


def _docx(data: bytes) -> Parts:
    html = _library("mammoth").convert_to_html(io.BytesIO(data)).value
    return _markdown(html)


def _odt(data: bytes) -> Parts:
    document = _library("odfdo").Document(io.BytesIO(data))
    document.get_style = cache(document.get_style)  # is looked for with each of its paragraphs
    return document.to_markdown()


def _odp(data: bytes) -> Parts:
    pages = _library("odfdo").Document(io.BytesIO(data)).body.get_draw_pages()
    lines = [page.get_elements("descendant::text:p|descendant::text:h") for page in pages]
    return ["".join(map(str, page)).rstrip() for page in lines]


def _epub(data: bytes) -> Parts:
    """Chapters in reading order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        package = next(container.iterfind(".//{*}rootfile")).attrib["full-path"]
        root = ElementTree.fromstring(archive.read(package))
        files = {item.attrib["id"]: item.attrib["href"] for item in root.iterfind(".//{*}item")}
        folder = posixpath.dirname(package)
        chapters: list[str] = []
        for itemref in root.iterfind(".//{*}itemref"):
            place = posixpath.join(folder, unquote(files[itemref.attrib["idref"]]))
            chapter = archive.read(posixpath.normpath(place))
            chapters.append(_markdown(re.sub(rb"(?s)\A.*?(?=<body\b)", b"", chapter)))
    return "\n\n".join(filter(None, chapters))


def _pptx(data: bytes) -> Parts:
    deck = _library("pptx").Presentation(io.BytesIO(data))
    return ["\n\n".join(_texts(slide.shapes)) for slide in deck.slides]


def _texts(shapes: Iterable[Any]) -> Iterable[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _texts(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text.replace("\v", "\n")
        elif getattr(shape, "has_table", False):
            yield _rows([cell.text for cell in row.cells] for row in shape.table.rows)


def _sheets(data: bytes) -> Parts:
    book = _library("python_calamine").load_workbook(io.BytesIO(data))
    return [
        f"# {name}\n\n{_rows(book.get_sheet_by_name(name).to_python(skip_empty_area=True))}"
        for name in book.sheet_names
    ]


def _rows(rows: Iterable[Iterable[Any]]) -> str:
    """Rows with a tab between cells; whole numbers without a point."""
    return "\n".join("\t".join(map(_cell, row)).rstrip("\t") for row in rows)


def _cell(value: Any) -> str:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return " ".join(str(whole).split())


_PARTS: tuple[tuple[str, Callable[[bytes], Parts]], ...] = (
    ("word/document.xml", _docx),
    ("ppt/presentation.xml", _pptx),
    ("xl/workbook.xml", _sheets),
    ("xl/workbook.bin", _sheets),
    ("META-INF/container.xml", _epub),
)
"""What a part of an archive shows it to be."""

_MIME_TYPES: dict[bytes, Callable[[bytes], Parts]] = {
    b"application/vnd.oasis.opendocument.text": _odt,
    b"application/vnd.oasis.opendocument.presentation": _odp,
    b"application/vnd.oasis.opendocument.spreadsheet": _sheets,
}


def _reader(data: bytes, name: str) -> Callable[[bytes], Parts]:
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
            mime_type = archive.read("mimetype")[:100] if "mimetype" in names else b""
        known = next((reads for part, reads in _PARTS if part in names), None)
        reads = _MIME_TYPES.get(mime_type.strip()) or known
        if reads is None:
            raise RefusedFileError("is an archive of files, not a text")
        return reads
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        if name.lower().endswith(".xls"):
            return _sheets
        raise RefusedFileError(
            "is encrypted, or in an old Office format: save it as docx, pptx or xlsx"
        )
    return _pdf if b"%PDF-" in data[:1024] or name.lower().endswith(".pdf") else _html


# Requests


def _answer(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        if request["page"]:
            return {"picture": _picture(data, request["page"]).hex()}
        found = _reader(data, request["name"])(data)
    except RefusedFileError as error:
        return {"error": str(error), "why": ""}
    except MemoryError:
        return {"error": "takes too much memory to be read", "why": "", "ends": True}
    except BaseException as error:  # also a panic of Rust code, after which nothing is sure
        why = f"{type(error).__name__}: {error}"[:200].encode(errors="replace").decode()
        return {"error": "is damaged", "why": why, "ends": not isinstance(error, Exception)}
    pages = [found] if isinstance(found, str) else found
    text = "\f".join(page.replace("\f", "\n").replace("\0", "") for page in pages)
    if not text.strip():
        return {"error": "has no text", "why": ""}
    if len(text) > request["characters"]:
        most = request["characters"] // 10**6
        return {"error": f"has over {most} million characters of text", "why": ""}
    return {"text": text, "pages": 0 if isinstance(found, str) else len(found)}


def _bound_memory(most: int) -> None:
    if sys.platform == "linux":  # elsewhere the parent looks at what is held
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _stay_inside(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what no reader needs to do, whatever a file makes it attempt."""
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    acts = event.startswith(("os.", "socket.", "subprocess.")) and event not in _LOOKING
    if writes or acts:
        raise PermissionError(f"{event} by a reader of files")


_LOOKING = ("os.listdir", "os.scandir")
"""What an import does."""


def main() -> None:
    """Answer until standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints
    sys.dont_write_bytecode = True
    sys.addaudithook(_stay_inside)
    _bound_memory(json.loads(requests.readline())["memory"])
    answers.write(b"{}\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        answer = _answer(request, requests.read(request["bytes"]))
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
