"""The results of a bench as a self-contained HTML page."""

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.bench.figures import (
    acceptance_figure,
    cost_figure,
    length_figure,
    rate_figure,
    speedup_figure,
)
from app.bench.results import Bench
from app.bench.wording import (
    SLOWER,
    decimals,
    idle_sentences,
    main_method,
    parameters,
    percent,
    round_sentences,
    same_token_sentences,
    sentence,
    spread_sentences,
)


@dataclass(frozen=True, slots=True)
class Card:
    """The headline: the main method's speedup at one temperature."""

    speedup: str
    slower: bool
    where: str
    acceptance: str


def page(bench: Bench) -> str:
    """Render the page as HTML."""
    environment = Environment(
        loader=PackageLoader("app", "bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        bench=bench,
        facts=_facts(bench),
        cards=[_card(bench, temperature) for temperature in bench.temperatures],
        warnings=[sentence(text) for text in round_sentences(bench)],
        speedups=[speedup_figure(bench, temperature) for temperature in bench.temperatures],
        acceptance=acceptance_figure(bench),
        lengths=length_figure(bench),
        cost=cost_figure(bench),
        rates=rate_figure(bench),
        measured=_measured(bench),
    )


def _facts(bench: Bench) -> list[tuple[str, str]]:
    """Name and value of what was measured, where and when; unknown values are left out."""
    facts = [
        ("device", bench.device),
        ("quantization", bench.quantization),
        ("size", parameters(bench.parameters)),
        ("engine", f"{bench.backend}, {bench.threads} {_plural('thread', bench.threads)}"),
        ("suite", bench.suite),
        ("date", bench.date),
    ]
    return [(name, fact) for name, fact in facts if fact]


def _card(bench: Bench, temperature: float) -> Card:
    method = main_method(bench)
    mean = bench.mean_speedup(method, temperature)
    runs = bench.select(method, temperature=temperature)
    accepted, drafted = sum(run.accepted for run in runs), sum(run.drafted for run in runs)
    kinds = f"{len(bench.kinds)} {_plural('kind', len(bench.kinds))} of prompts"
    return Card(
        decimals(mean, 2),
        mean is not None and mean < SLOWER,
        f"{method} at temperature {temperature:g}, mean of {kinds}",
        f"acceptance {percent(bench.acceptance(method, temperature))} "
        f"(accepted {accepted:,} of {drafted:,} drafted)"
        if drafted
        else "nothing was drafted",
    )


def _measured(bench: Bench) -> list[tuple[str, str]]:
    """Term and explanation of how the figures came about."""
    prompts = len({(run.kind, run.prompt) for run in bench.runs})
    rounds = f"{bench.rounds}, interleaved: every method takes its turn in each round, so a "
    rounds += "machine that grows warm or busy affects all of them alike."
    return [
        ("rounds", rounds),
        *(("spread", sentence(text)) for text in spread_sentences(bench)),
        *(("idle", sentence(text)) for text in idle_sentences(bench)),
        ("replies", f"{prompts} {_plural('prompt', prompts)}, up to {bench.max_tokens} tokens per "
         f"reply, at temperature {_listed(bench.temperatures)}."),
        ("speedup", "Decode rate over that of plain decoding (off) in the same round, median over "
         "the rounds. The decode rate is the number of tokens after the first over the seconds "
         "they took. Means over kinds are geometric."),
        ("acceptance", "Accepted over drafted tokens."),
        ("wall", "Memory bandwidth over the bytes that plain decoding reads per token: the highest "
         "rate that memory allows plain decoding; lower where a part of them comes from disk."),
        *(("same tokens", sentence(text)) for text in same_token_sentences(bench)),
    ]  # fmt: skip


def _listed(temperatures: tuple[float, ...]) -> str:
    return " and ".join(f"{temperature:g}" for temperature in temperatures)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
