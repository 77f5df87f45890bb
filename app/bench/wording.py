"""What table and page say in the same words and digits."""

from app.bench.results import AUTO, PLAIN, Bench
from app.shapes import shape_shares

MISSING = "-"
SLOWER = 0.98
"""A method below it is called slower than plain decoding; above, rounds differ as much."""


def decimals(value: float | None, digits: int) -> str:
    """A figure, or the sign of a missing one."""
    return MISSING if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """A share as per cent."""
    return MISSING if share is None else f"{100 * share:.0f} %"


def digits(value: float) -> str:
    """Three digits or so, never as a power of ten."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"


def gigabytes(count: float) -> str:
    """A number of bytes in GB."""
    return f"{digits(count / 1e9)} GB"


def parameters(count: int) -> str:
    """A number of parameters in words."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {name} parameters"
    return f"{count:,} parameters"


def comparable_rate(bench: Bench, method: str, temperature: float) -> float | None:
    """Tokens per second; None where a kind is missing, as other kinds run at other rates."""
    if any(bench.rate(method, kind, temperature) is None for kind in bench.kinds):
        return None
    return bench.rate(method, temperature=temperature)


def wall_sentence(bench: Bench) -> str:
    """What memory allows plain decoding, and what it reached."""
    wall, bandwidth = bench.wall, bench.bandwidth_bytes_per_second
    reads = f"plain decoding reads {gigabytes(bench.bytes_per_token)} a token"
    ran = f"plain ran at {decimals(bench.rate(PLAIN), 1)}"
    if wall is None or bandwidth is None:
        return f"{reads}; memory bandwidth was not measured; {ran} tok/s"
    source = bench.bandwidth_source or "source unknown"
    gives = f"memory gives {gigabytes(bandwidth)}/s ({source})"
    return f"{reads}; {gives}: at most {wall:.1f} tok/s; {ran}"


def spread_sentence(bench: Bench) -> str:
    """How far a round lay from its median at most, and where."""
    found = [
        (max(speedup.most - speedup.median, speedup.median - speedup.least) / speedup.median, place)
        for place in _places(bench)
        if (speedup := bench.speedup(*place)) is not None
    ]
    if not found:
        return "no speedup was measured"
    if bench.rounds < 2:
        return "one round: how far rounds differ is not known"
    furthest, (method, kind, temperature) = max(found)
    where = f"{method}, {kind}, temperature {temperature:g}"
    return f"no round lay further than {percent(furthest)} from its median ({where})"


def idle_sentences(bench: Bench) -> list[str]:
    """Which methods drafted nothing, so that nobody reads their figures as gain or loss."""
    return [
        f"drafted nothing at temperature {temperature:g}, so that its difference from plain is "
        f"noise: {'; '.join(idle)}"
        for temperature in bench.temperatures
        if (idle := [method for method in bench.methods if _is_idle(bench, method, temperature)])
    ]


def _is_idle(bench: Bench, method: str, temperature: float) -> bool:
    runs = bench.select(method, temperature=temperature)
    return method != PLAIN and any(run.steps for run in runs) and not any(r.drafted for r in runs)


def _places(bench: Bench) -> list[tuple[str, str, float]]:
    return [
        (method, kind, temperature)
        for method in drafting_methods(bench)
        for kind in bench.kinds
        for temperature in bench.temperatures
    ]


def drafting_methods(bench: Bench) -> list[str]:
    """Every method but plain decoding."""
    return [method for method in bench.methods if method != PLAIN]


def main_method(bench: Bench) -> str:
    """What drafts unless something else is asked for, or the first that drafts."""
    return AUTO if AUTO in bench.methods else next(iter(drafting_methods(bench)), PLAIN)


def shape_sentences(bench: Bench) -> list[str]:
    """What the main method drafted; nothing where no step was counted."""
    method = main_method(bench)
    shares = shape_shares(bench.steps_by_shape(method))
    return [f"steps of {method} by shape: {shares}"] if shares else []
