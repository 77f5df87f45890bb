"""Files of other programs as text; tests/fixtures/other_programs/README.md says what made each."""

# ruff: noqa: RUF001

import contextlib
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import psutil
import pytest

from app.documents import document, worker
from app.documents.document import Document, page_picture, read, read_bytes
from backends.base.safe_files import NotTextError, TooLargeError
from backends.base.watched_process import WatchedProcess

FILES = Path(__file__).parents[2] / "fixtures" / "other_programs"

PLAN = [
    "900 litres an hour",
    "tulips, 40",
    "Pump",
    "129",
    "größer, schöner",
    "日本語の文",
    "Русский",
]
SAYS = {
    "plan.docx": (0, ["# Garden", "## Costs", "| Pump | 129 |", "**pump**", "frogs"]),
    "plan.odt": (0, ["# Garden", "## Costs", "| Pump ", "frogs"]),
    "plan.epub": (0, ["# Garden", "## Costs", "| Pump | 129 |", "def litres"]),
    "plan.html": (0, ["# Garden", "(https://example.org/ponds)", "```\ndef litres"]),
    "plan.pptx": (7, ["Pump\t129"]),
    "pond.pdf": (2, ["Łódź,\nпривет, 日本.\fOn the second page", "extraordinarily long"]),
    "frogs.pdf": (2, ["3 m² of water.\fNewts"]),
    "invoice.pdf": (1, ["Invoice 4711: 129 euro"]),
    "writer.docx": (0, ["# Garden", "## Costs", "| Pump | 129 |", "**pump**", "frogs"]),
    "writer.odt": (0, ["# Garden", "## Costs", "| Pump ", "frogs"]),
    "writer.epub": (0, ["| Pump | 129 |"]),
    "writer.pdf": (1, ["Item Euro\nPump 129", "日本語の文。Русский"]),
    "chromium.pdf": (1, ["Item Euro\nPump 129"]),
    "impress.odp": (7, ["Pump\n129\nLiner", "\fCosts"]),
    "calc.ods": (2, ["# Costs", "Pump\t129\t2026-05-01\nLiner\t86.5\n\t215.5"]),
    "calc.xls": (2, ["# Costs", "Pump\t129\t2026-05-01\nLiner\t86.5\n\t215.5"]),
    "calc.xlsx": (2, ["# Costs", "Pump\t129\t2026-05-01\nLiner\t86.5\n\t215.5"]),
    "costs.xlsx": (2, ["# Costs", "Pump\t129\t2026-05-01\nLiner\t86.5\n\t215.5"]),
}


@pytest.mark.parametrize("name", SAYS)
def test_files_of_other_programs(name: str, tmp_path: Path) -> None:
    pages, said = SAYS[name]
    found = read(FILES / name)
    assert found.pages == pages
    assert found.text.count("\f") == max(0, pages - 1)
    for words in said + (PLAN if name.startswith("plan") else []):
        assert words in found.text
    assert "<" not in found.text
    other = tmp_path / "日本 отчёт.bin"  # what it is shows in its bytes
    other.write_bytes((FILES / name).read_bytes())
    if name not in ("plan.html", "calc.xls"):
        assert read(other) == found == read_bytes(other.read_bytes())
    assert read_bytes(other.read_bytes(), f"отчёт{Path(name).suffix.upper()}") == found


NO_TEXT = {
    "scan.pdf": "has no text: a scan; a model that sees images can read its pages",
    "locked.pdf": "is encrypted",
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_files_without_text_say_why(name: str) -> None:
    with pytest.raises(NotTextError) as caught:
        read(FILES / name)
    assert caught.value.fault == NO_TEXT[name]


def test_a_page_as_a_picture() -> None:
    picture = page_picture(FILES / "scan.pdf", 1)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture[16:20]) == int.from_bytes(picture[20:24]) == 1500
    with pytest.raises(NotTextError, match="has no page 2"):
        page_picture(FILES / "scan.pdf", 2)


SENTENCES = {
    "cp1252": "Das Übermaß an Größe – „schön“ – kostet 5 €, sagte Müller.",
    "latin-1": "L'été dernier, la fenêtre était ouverte à cause de la chaleur.",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "shift_jis": "これは日本語の文章です。漢字とカタカナも含まれています。",
    "euc_jp": "これは日本語の文章です。漢字とカタカナも含まれています。",
    "gb18030": "这是一个中文文件,用于测试编码检测。内容包括计划和预算。",
    "big5": "這是一個中文檔案,用於測試編碼檢測。內容包括計劃和預算。",
    "cp949": "이것은 한국어 텍스트입니다. 인코딩을 테스트합니다.",
    "koi8-r": "Это русский текст, написанный в старой кодировке. Москва и Казань.",
    "cp1251": "Это русский текст, написанный в старой кодировке. Москва и Казань.",
    "cp1253": "Αυτό είναι ένα ελληνικό κείμενο για τον έλεγχο της Αθήνας.",
}


@pytest.mark.parametrize("encoding", SENTENCES)
def test_text_of_another_encoding(encoding: str) -> None:
    line = SENTENCES[encoding] + "\r\n"
    code = "plain ASCII = 7\r\n" * 9
    for text in (line, code + line, line * 3_000):
        assert read_bytes(text.encode(encoding)).text == text.replace("\r\n", "\n")


SHORT = {
    "cp1252": [
        "José\nMüller\nZoë",
        "Prix : 12 €",
        "Größe",
        "“It’s a test” — done",
        "Århus på båden",
    ],
    "cp1251": ["Привет, мир", "Счёт № 5", "Имя;Город\nИван;Казань"],
    "koi8-r": ["Привет, мир", "Имя;Город\nИван;Казань"],
    "shift_jis": ["こんにちは", "請求書", "名前,住所\n山田,東京", "テスト"],
    "gb18030": ["你好世界", "发票", "姓名,地址\n张三,北京"],
    "cp1250": ["Žluťoučký kůň", "Łódź, Kraków"],
}


@pytest.mark.parametrize("encoding", SHORT)
def test_a_few_words_are_told_apart(encoding: str) -> None:
    assert [read_bytes(text.encode(encoding)).text for text in SHORT[encoding]] == SHORT[encoding]


def test_unicode_by_its_mark_and_utf_8_with_a_damaged_byte() -> None:
    text = "größer 日本 😀\n"
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert read_bytes(text.encode(encoding)).text == text
    for mark, encoding in ((b"\xfe\xff", "utf-16-be"), (b"\0\0\xfe\xff", "utf-32-be")):
        assert read_bytes(mark + text.encode(encoding)).text == text
    assert read_bytes(text.encode()) == Document(text)
    cut = (text * 9).encode()[:-3]
    assert read_bytes(cut) == Document(cut.decode(errors="replace"))


@pytest.mark.parametrize(
    "data", [b"\x7fELF\x02\x01\1\0", b"a\0b", bytes(range(256)), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"]
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(NotTextError):
        read_bytes(data)


def test_a_text_longer_than_any_context_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plan.html", "plan.docx", "invoice.pdf"):
        monkeypatch.setattr(document, "MOST_CHARACTERS", 20)
        with pytest.raises(NotTextError, match="million characters"):
            read_bytes((FILES / name).read_bytes(), name)
    with pytest.raises(NotTextError, match="million characters"):
        read_bytes(b"x" * 21)
    monkeypatch.setattr(document, "MOST_BYTES", 20)
    with pytest.raises(TooLargeError):
        read_bytes(b"x" * 21)


def archive(name: str, data: bytes = b"", **others: bytes) -> bytes:
    with zipfile.ZipFile(made := BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        for part, content in {name: data, **others}.items():
            file.writestr(part, content)
    return made.getvalue()


def test_a_bomb_ends_its_reader_and_the_next_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = archive("META-INF/container.xml", bytes(150_000_000))
    assert len(bomb) < 200_000
    document._CHILD.close()
    with monkeypatch.context() as patch:
        patch.setattr(document, "MOST_MEMORY", 150_000_000)
        with pytest.raises(NotTextError, match="takes too much memory"):
            read_bytes(bomb)
    assert read_bytes((FILES / "invoice.pdf").read_bytes()).pages == 1


def _child() -> psutil.Process:
    process = document._CHILD._process
    assert process is not None
    return psutil.Process(process._process.pid)


def test_no_child_is_left_when_it_is_closed() -> None:
    read_bytes((FILES / "invoice.pdf").read_bytes())
    child = _child()
    document._CHILD.close()
    assert not child.is_running()


def test_a_reader_that_hangs_or_crashes_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FILES / "invoice.pdf").read_bytes()
    read_bytes(data)
    child = _child()
    child.suspend()
    with monkeypatch.context() as patch:
        patch.setattr(document, "SECONDS", 0.2)
        with pytest.raises(NotTextError, match="cannot be read: it did not answer in 0 s"):
            read_bytes(data)
    assert not child.is_running()
    read_bytes(data)
    other = _child()
    other.suspend()
    other.kill()
    with pytest.raises(NotTextError, match="cannot be read: its process ended with SIGKILL"):
        read_bytes(data)
    assert read_bytes(data).pages == 1


def test_a_library_that_is_missing_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(worker.importlib, "import_module", missing)
    request = {"page": 0, "name": "a.docx", "characters": 100}
    answer = worker._answer(request, (FILES / "plan.docx").read_bytes())
    assert answer["error"] == "needs a library to be read: pip install specchat[documents]"


def test_a_reader_opens_no_connection_and_writes_no_file(tmp_path: Path) -> None:
    lines = [
        "import os, sys, socket, subprocess",
        "from app.documents.worker import _stay_inside",
        "sys.addaudithook(_stay_inside)",
        "for way in (lambda: open(sys.argv[1], 'w'), lambda: socket.create_connection(('::1', 9)),",
        "            lambda: subprocess.Popen(['true']), lambda: os.system('true'),",
        "            lambda: os.remove(sys.argv[0]), lambda: os.mkdir(sys.argv[1])):",
        "    try: way()",
        "    except PermissionError as error: print(error)",
        "open(sys.argv[2]).read()",
    ]
    file = tmp_path / "a.txt"
    file.touch()
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path / "b"), str(file)],
        capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(FILES.parents[2])},
    )  # fmt: skip
    assert ran.stdout.count("by a reader of files") == 6
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ((FILES / name).read_bytes() for name in ("invoice.pdf", "frogs.pdf"))
    read_bytes(first)

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WatchedProcess, "line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            read_bytes(first)
    assert "frog" in read_bytes(second).text


def test_a_file_is_read_once_in_each_state(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes((FILES / "invoice.pdf").read_bytes())
    first = read(path)
    assert read(path) is first
    path.write_bytes((FILES / "frogs.pdf").read_bytes())
    assert "frog" in read(path).text.lower()
    path.write_bytes((FILES / "scan.pdf").read_bytes())
    for _ in range(2):
        with pytest.raises(NotTextError, match="a scan"):
            read(path)


HOSTILE = b"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e SYSTEM "file://%s">]>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">
<w:body><w:p><w:r><w:t>seen &e;</w:t></w:r></w:p></w:body></w:document>"""


def test_nothing_that_a_file_names_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("walrus")
    plan = zipfile.ZipFile(FILES / "plan.docx")
    parts = {name: plan.read(name) for name in plan.namelist()}
    parts["word/document.xml"] = HOSTILE % os.fsencode(secret)
    with contextlib.suppress(NotTextError):
        assert "walrus" not in read_bytes(archive("a", **parts)).text
    html = f'<p>seen</p><iframe src="{secret.as_uri()}"></iframe><script>walrus</script>'
    assert read_bytes(html.encode(), "a.html").text == "seen"
