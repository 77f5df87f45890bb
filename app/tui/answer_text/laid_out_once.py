"""Laying a growing widget out once instead of twice."""

from typing import TYPE_CHECKING

from textual.geometry import Size

if TYPE_CHECKING:
    from textual.widget import Widget as _Widget
else:
    _Widget = object


class LaidOutOnce(_Widget):
    """A widget without scrollbars whose new size needs no second layout of the screen.

    Textual asks for one whenever the size of a widget's content changes, since scrollbars may
    come or go: a third of what painting a growing answer costs.
    """

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        del layout
        return super()._size_updated(size, virtual_size, container_size, layout=False)
