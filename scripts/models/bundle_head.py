"""Makes the head that comes with specchat of one that was trained for the bundled model.

Run: python -m scripts.models.bundle_head demo-eagle3, after `specchat models train demo`.

The head is written smaller, and both forms are tested on prompts of other requests about other
things than those that are trained on. It prints rows of the tables of
docs/how-it-works/training.md.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import gguf
from gguf import GGMLQuantizationType as Form

from app.engine.session_opening import open_session
from app.learned.registered import BUNDLED, MANIFEST, manifest_of, named
from app.loading.session_options import OFF_DRAFT, SessionOptions
from app.paths import Paths
from app.training.answers import to_ask
from app.training.prompts import made_prompts
from app.training.rollout import USUAL, Acceptance, Result, by_spec, results, rolled_out
from training.files import add, finish, writer_as

_LAYER, _OUTPUT = Form.Q5_0, Form.Q4_0
"""Of matrices. As accepted as q8_0 within its error, at two thirds of its size
(docs/how-it-works/training.md)."""


def write_small(head: Path, path: Path) -> None:
    """Copy an EAGLE-3 head in smaller forms."""
    reader = gguf.GGUFReader(head)
    writer = writer_as(reader, path, "eagle3")
    for tensor in reader.tensors:
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        form = _OUTPUT if tensor.name == "output.weight" else _LAYER
        add(writer, tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type), form)
    finish(writer)


def tested(heads: dict[str, Path], prompts: int, threads: int | None) -> list[Result]:
    """What the bundled model keeps of the drafts of heads, by their names."""
    options = SessionOptions("demo", draft=OFF_DRAFT, ctx=1024, threads=threads)
    contenders = [by_spec(f"eagle3:{head}", name) for name, head in heads.items()]
    with TemporaryDirectory() as scratch:
        notes = Path(scratch) / "answers.jsonl"
        with closing(open_session(options, Paths.of_this_user(), print)) as session:
            asked = [*to_ask(made_prompts("test", prompts), session.template, draws=1)]
            for done, total in rolled_out(session, contenders, asked, notes):
                print(f"{done} of {total}", end="\r", flush=True)
            return [*results(contenders, asked, notes)]


def rows(found: Sequence[Result]) -> Iterator[str]:
    """Each head at each temperature, then the first one by kind of prompt."""
    for one in found:
        of = one.overall
        heat, share = f"{one.temperature:g}", f"{1 - of.silent:.0%}"
        figures = _with_error(of), _shares(of.conditional), f"{of.tokens_per_pass:.2f}"
        yield _row(one.name, heat, f"{of.positions:,}", share, *figures)
    for one in (each for each in found if each.name == found[0].name):
        for kind, of in one.by_kind.items():
            yield _row(kind, f"{one.temperature:g}", _with_error(of), f"{of.tokens_per_pass:.2f}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(f"{one:.2f}" for one in shares)


def _with_error(of: Acceptance) -> str:
    return f"{_shares(of.cumulative)}" + (f" ± {max(of.errors):.2f}" if of.errors else "")


def main(words: Sequence[str] | None = None) -> None:
    """Write the head and its manifest, and print what was kept of its drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="as models list has it")
    parser.add_argument("--prompts", type=int, default=72)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, default=BUNDLED / "demo-eagle3")
    given = parser.parse_args(words)
    entry = named(Paths.of_this_user(), given.name)
    small = given.folder / "head.gguf"
    if entry is None or entry.path == small:
        parser.error(f"{given.name} was not trained here")
    given.folder.mkdir(parents=True, exist_ok=True)
    write_small(entry.path, small)
    found = tested({"head": small, "as trained": entry.path}, given.prompts, given.threads)
    print(*rows(found), sep="\n")
    kept = next(one.overall.conditional for one in found if one.temperature == USUAL)
    entry = replace(entry, folder=Path(), acceptance=tuple(round(share, 3) for share in kept))
    (given.folder / MANIFEST).write_text(f"{manifest_of(entry)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
