"""The screen of the campaigns shows what a terminal would, whole pictures alone."""

from scripts.campaigns.observed import PICTURE_END, Screen


def shown(*written: bytes) -> list[str]:
    screen = Screen(6, 3)
    for part in written:
        screen.write(part)
    return screen.lines


def test_lines_follow_each_other() -> None:
    assert shown(b"\x1b[1;1Hone\r\ntwo\r\nthree" + PICTURE_END) == ["one", "two", "three"]


def test_a_part_is_painted_over_what_was_there() -> None:
    first, part = b"one\r\ntwo" + PICTURE_END, b"\x1b[2;2H\x1b[1mT\x1b[0m" + PICTURE_END
    assert shown(first, part) == ["one", "tTo", ""]


def test_a_picture_is_shown_once_it_has_come_whole() -> None:
    cut = b"\x1b[2;3Hxy" + PICTURE_END
    for place in range(len(cut)):
        assert shown(b"one" + PICTURE_END, cut[:place]) == ["one", "", ""]
        assert shown(b"one" + PICTURE_END, cut[:place], cut[place:]) == ["one", "  xy", ""]


def test_what_is_beyond_an_edge_is_not_shown() -> None:
    assert shown(b"\x1b[1;5Habcd\x1b[1;9Hx\x1b[4;1Hy" + PICTURE_END) == ["    ab", "", ""]
