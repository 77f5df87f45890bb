"""The screen of the campaigns shows what a terminal would, whole pictures alone."""

from scripts.campaigns.screen import PICTURE_END, Screen


def shown(*written: str) -> list[str]:
    screen = Screen(6, 3)
    for text in written:
        screen.write(text)
    return screen.lines


def test_lines_follow_each_other() -> None:
    assert shown("\x1b[1;1Hone\r\ntwo\r\nthree" + PICTURE_END) == ["one", "two", "three"]


def test_a_part_is_painted_over_what_was_there() -> None:
    first, part = "one\r\ntwo" + PICTURE_END, "\x1b[2;2H\x1b[1mT\x1b[0m" + PICTURE_END
    assert shown(first, part) == ["one", "tTo", ""]


def test_a_picture_is_shown_once_it_has_come_whole() -> None:
    cut = "\x1b[2;3Hxy" + PICTURE_END
    for place in range(len(cut)):
        assert shown("one" + PICTURE_END, cut[:place]) == ["one", "", ""]
        assert shown("one" + PICTURE_END, cut[:place], cut[place:]) == ["one", "  xy", ""]


def test_what_is_beyond_an_edge_is_not_shown() -> None:
    assert shown("\x1b[1;5Habcd\x1b[1;9Hx\x1b[4;1Hy" + PICTURE_END) == ["    ab", "", ""]
