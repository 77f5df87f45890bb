"""Links between the pages of the documentation lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _text(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> Iterator[str]:
    """Anchors that GitHub gives the headings of a page."""
    for heading in _HEADING.findall(_text(page)):
        words = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower())
        yield words.replace(" ", "-")


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    links = [link for link in _LINK.findall(_text(page)) if not link.startswith("http")]
    assert [link for link in links if not _leads_somewhere(page, link)] == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(_text(index))}
    assert [page for page in (ROOT / "docs").rglob("*.md") if page not in linked | {index}] == []
