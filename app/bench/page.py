"""What a bench found, as one page that needs nothing but itself."""

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from app.bench.accepted_lengths import length_figure
from app.bench.charts import colours
from app.bench.figures import (
    acceptance_figure,
    cost_figure,
    rate_figure,
    speedup_figure,
)
from app.bench.results import PLAIN, Bench
from app.bench.wording import (
    SLOWER,
    decimals,
    idle_sentences,
    main_method,
    parameters,
    percent,
    spread_sentence,
)


@dataclass(frozen=True, slots=True)
class Card:
    """The figure that matters, at one temperature."""

    speedup: str
    slower: bool
    where: str
    acceptance: str


def page(bench: Bench) -> str:
    """The page, as HTML."""
    environment = Environment(
        loader=PackageLoader("app", "bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    styles = colours(bench.methods)
    return environment.get_template("page.html.j2").render(
        bench=bench,
        facts=_facts(bench),
        cards=[_card(bench, temperature) for temperature in bench.temperatures],
        methods=[(method, styles[method]) for method in bench.methods],
        speedups=[speedup_figure(bench, temperature) for temperature in bench.temperatures],
        acceptance=acceptance_figure(bench),
        lengths=length_figure(bench),
        cost=cost_figure(bench),
        rates=rate_figure(bench),
        measured=_measured(bench),
    )


def _facts(bench: Bench) -> list[tuple[str, str]]:
    """What was measured where and when; what is not known is left out."""
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
    prompts = len({(run.kind, run.prompt) for run in bench.runs})
    found = [
        ("rounds", f"{bench.rounds}, interleaved: each method takes its turn in every round, so "
         "that a machine growing warm or busy meets all of them alike."),
        ("figures", f"Medians over the rounds; {spread_sentence(bench)}."),
        *(("idle", f"{sentence[0].upper()}{sentence[1:]}.") for sentence in idle_sentences(bench)),
        ("replies", f"{prompts} {_plural('prompt', prompts)}, up to {bench.max_tokens} tokens a "
         f"reply, at temperature {_listed(bench.temperatures)}."),
        ("speedup", "Decode rate over the rate of plain decoding in the same round; decode rate is "
         "tokens after the first over the seconds they took. Means over kinds are geometric."),
        ("acceptance", "Accepted of drafted tokens."),
        ("wall", "Memory bandwidth over the bytes that plain decoding reads for a token: the most "
         "tokens a second that memory alone would let plain decoding reach."),
    ]  # fmt: skip
    return [*found, *_same_tokens(bench)]


def _same_tokens(bench: Bench) -> list[tuple[str, str]]:
    compared = [
        run.same_tokens
        for run in bench.runs
        if run.same_tokens is not None and run.temperature == 0 and run.method != PLAIN
    ]
    if not compared:
        return []
    same, all_ = sum(compared), len(compared)
    told = f"At temperature 0, {same:,} of {all_:,} replies have the very tokens of plain decoding"
    why = "" if same == all_ else "; rounding in passes over several tokens can turn near-ties"
    return [("same tokens", f"{told}{why}.")]


def _listed(temperatures: tuple[float, ...]) -> str:
    return " and ".join(f"{temperature:g}" for temperature in temperatures)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
