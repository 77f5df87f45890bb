"""Charts of the bench page as SVG, drawn by matplotlib.

Colours are placeholders for the variables of page.css, so that charts follow the light and the dark
theme. Text stays text.
"""

# pyright: reportUnknownMemberType=false
# matplotlib's own annotations are incomplete.

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.typing import RcKeyType

from app.bench.results import PLAIN
from app.printable import one_line

_WIDTH = 4.6
_ROW = 0.17
_LINE_CHART_HEIGHT = 3.2
"""In inches of 72 units. Narrow, so that letters stay readable on a phone."""

_LONGEST_NAME = 28
_LARGEST_CIRCLE = 900.0
"""Area of the circle that stands for all steps, in square units."""

_INK, _QUIET, _RULE = "#000001", "#000002", "#000003"
_PLAIN_COLOUR = "#000010"
_COLOURS = tuple(f"#00001{number}" for number in range(1, 7))
_DASHES = ("-", "--", ":")
_VARIABLES = {_INK: "--ink", _QUIET: "--quiet", _RULE: "--rule", _PLAIN_COLOUR: "--c0"} | {
    colour: f"--c{number}" for number, colour in enumerate(_COLOURS, start=1)
}
_OPENING_TAG = re.compile(r'^.*?<svg[^>]*(viewBox="[^"]*")[^>]*>', re.DOTALL)
_STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 8,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": _INK,
    "axes.labelcolor": _QUIET,
    "axes.edgecolor": _RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": _RULE,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of one method and its label; the whisker spans least to most."""

    method: str
    value: float | None
    label: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """Colour and dashes of a method."""

    colour: str
    dashes: str = "-"


def bar_chart(
    groups: Mapping[str, Sequence[Bar]],
    methods: Sequence[str],
    axis: str,
    reference: float | None,
    limit: float | None = None,
) -> str:
    """Horizontal bars below one heading for each group, with a line at the reference.

    limit: the end of the axis; None fits it to the bars.
    """
    sizes = [len(bars) + 2 for bars in groups.values()]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _ROW * (sum(sizes) + 3)), layout="constrained")
        all_axes = figure.subplots(len(groups), sharex=True, squeeze=False, height_ratios=sizes)
        looks = _looks(methods)
        for axes, (heading, bars) in zip(all_axes.flat, groups.items(), strict=True):
            axes.set_title(heading)
            _draw_bars(axes, bars, looks)
            if reference is not None:
                axes.axvline(reference, color=_INK, linewidth=0.9)
        last: Axes = all_axes.flat[-1]
        last.set_xlabel(axis)
        last.set_xlim(0.0, limit and limit * 1.15)
        return _svg(figure)


def _draw_bars(axes: Axes, bars: Sequence[Bar], looks: Mapping[str, _Look]) -> None:
    values = [bar.value or 0.0 for bar in bars]
    whiskers = [
        [value - (value if bar.least is None else bar.least) for bar, value in _with(bars, values)],
        [(value if bar.most is None else bar.most) - value for bar, value in _with(bars, values)],
    ]
    drawn = axes.barh(
        range(len(bars)),
        values,
        height=0.7,
        color=[looks[bar.method].colour for bar in bars],
        xerr=whiskers if np.any(whiskers) else None,
        error_kw={"ecolor": _INK, "elinewidth": 0.9, "capsize": 2.0},
    )
    axes.bar_label(drawn, [bar.label for bar in bars], padding=3.0)
    axes.set_yticks(range(len(bars)), [_shortened(bar.method) for bar in bars])
    axes.invert_yaxis()
    axes.grid(axis="x")


def _with(bars: Sequence[Bar], values: Sequence[float]) -> Iterable[tuple[Bar, float]]:
    return zip(bars, values, strict=True)


def share_chart(
    shares: Mapping[str, Mapping[int, float]], methods: Sequence[str], axis: str
) -> str:
    """One line for each method: its share at each whole number of the axis."""
    with mpl.rc_context(_STYLE):
        figure, axes = _line_chart(axis)
        looks = _looks(methods)
        for method, line in shares.items():
            axes.plot(
                list(line),
                list(line.values()),
                color=looks[method].colour,
                linestyle=looks[method].dashes,
                marker="o",
                markersize=3.0,
                label=_shortened(method),
            )
        axes.set_ylim(0.0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        figure.legend(loc="outside lower center", ncols=2)
        return _svg(figure)


def cost_chart(costs: Mapping[int, float], steps: Sequence[int]) -> str:
    """Cost of a pass by its number of tokens; a circle for each draft length that was chosen.

    costs: in passes over one token. steps: counted by the number of tokens drafted, from none up.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _line_chart("tokens in one pass of the model")
        tokens, values = list(costs), list(costs.values())
        most = max(values) * 1.2
        axes.plot(tokens, values, color=_INK, marker="o", markersize=3.0, label="measured cost")
        axes.plot(
            [0.0, most], [0.0, most], "--", color=_QUIET, label="cost without batching: n passes"
        )
        chosen = [1 + drafted for drafted, count in enumerate(steps) if count]
        axes.scatter(
            chosen,
            np.interp(chosen, tokens, values),
            s=[_LARGEST_CIRCLE * count / sum(steps) for count in steps if count],
            color=_COLOURS[0],
            alpha=0.4,
            zorder=3,
        )
        axes.set_xlim(0.0, max([*tokens, *chosen]) + 0.5)
        axes.set_ylim(0.0, most)
        axes.set_ylabel("cost, in passes over one token")
        figure.legend(loc="outside lower center", ncols=2)
        return _svg(figure)


def _line_chart(axis: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, _LINE_CHART_HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(axis)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")
    return figure, axes


def _looks(methods: Sequence[str]) -> dict[str, _Look]:
    """One look for each method, the same in every chart of a page."""
    drafting = [method for method in methods if method != PLAIN]
    looks = {PLAIN: _Look(_PLAIN_COLOUR)}
    for number, method in enumerate(drafting):
        round_, place = divmod(number, len(_COLOURS))
        looks[method] = _Look(_COLOURS[place], _DASHES[round_ % len(_DASHES)])
    return looks


def _shortened(name: str) -> str:
    """A name that fits the chart, without its middle if it is too long."""
    name = one_line(name)
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _svg(figure: Figure) -> str:
    """The figure as an element of a page, with ids that no other chart has, and no links.

    Clip paths are links, so nothing is clipped.
    """
    for artist in figure.findobj():
        artist.set_clip_on(False)
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings():
        # The browser has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    svg = _OPENING_TAG.sub(r"<svg \1>", file.getvalue())
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
