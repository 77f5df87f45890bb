"""Compare the catalogue with the hub.

Run: `python -m scripts.release.check_catalogue [NAME ...] [--write]`.

For each model: whether its repository exists, has the files named, of the sizes stated, and is
gated as said; and whether the repositories for MLX and of drafters exist. --write puts exact sizes
and the day of the check into catalogue.toml for the models that agree.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.catalogue import FILE, CatalogueDrafter, Entry, read

_TOLERANCE = 0.02
"""How far a rounded size may be from the exact one."""

_SPLIT = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the hub says of one model. sizes are exact, by quantization; faults name differences."""

    entry: Entry
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the hub: bytes by file, and whether one must ask for access."""

    sizes: dict[str, int]
    is_gated: bool


class Hub:
    """The part of the hub's interface that is needed."""

    def __init__(self, endpoint: str | None = None) -> None:
        from huggingface_hub import HfApi

        self._api = HfApi(endpoint=endpoint, token=False)

    def repository(self, name: str) -> Repository | None:
        """A repository, None where there is none.

        Raises:
            HfHubHTTPError: the hub cannot be asked.
        """
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            info = self._api.model_info(name, files_metadata=True)
        except RepositoryNotFoundError:
            return None
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
        return Repository(sizes, bool(info.gated))


def check(entry: Entry, hub: Hub) -> Finding:
    """Ask the hub about one model."""
    found = hub.repository(entry.repository)
    faults = [f"no {entry.mlx}"] if entry.mlx and hub.repository(entry.mlx) is None else []
    faults += [fault for one in entry.drafters if (fault := _missing(one, hub))]
    if found is None:
        return Finding(entry, faults=(f"no {entry.repository}", *faults))
    if found.is_gated != entry.is_gated:
        faults.append("gated" if found.is_gated else "not gated")
    sizes = _whole_sizes(found)
    exact = {one: sizes[entry.file(one)] for one in entry.quantizations if entry.file(one) in sizes}
    faults += [f"no {entry.file(one)}" for one in entry.quantizations if one not in exact]
    for quantization, size in exact.items():
        stated = entry.sizes.get(quantization)
        if stated and abs(stated - size) > _TOLERANCE * size:
            faults.append(f"{quantization} is {size:,} bytes, not {stated:,.0f}")
    return Finding(entry, exact, tuple(faults))


def _missing(drafter: CatalogueDrafter, hub: Hub) -> str:
    """The repository or file of a drafter that the hub has not; empty if there is all."""
    if drafter.mlx and hub.repository(drafter.mlx) is None:
        return f"no {drafter.mlx}"
    if not drafter.repository:
        return ""
    found = hub.repository(drafter.repository)
    if found is None:
        return f"no {drafter.repository}"
    is_there = not drafter.file or drafter.file in found.sizes
    return "" if is_there else f"no {drafter.file} in {drafter.repository}"


def written(text: str, findings: Sequence[Finding], day: str) -> str:
    """The catalogue's text with exact sizes and the day, for the models without faults."""
    for finding in findings:
        if finding.faults:
            continue
        sizes = ", ".join(f"{name} = {size}" for name, size in finding.sizes.items())
        block = re.search(
            rf'\[\[model\]\]\nname = "{re.escape(finding.entry.name)}"\n(?:\S.*\n)*', text
        )
        assert block is not None, "an entry is one block of lines"
        kept = re.sub(r"(?m)^(?:sizes|checked) = .*\n", "", block.group())
        fresh = f'{kept}sizes = {{ {sizes} }}\nchecked = "{day}"\n'
        text = text.replace(block.group(), fresh)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 1 where something differs."""
    parser = argparse.ArgumentParser(description="Compare the catalogue with the hub.")
    parser.add_argument("names", nargs="*", help="models to check, by default all")
    parser.add_argument("--write", action="store_true", help="write sizes and the day back")
    parser.add_argument("--endpoint", help="address of another hub")
    parser.add_argument("--catalogue", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    text = options.catalogue.read_text(encoding="utf-8")
    hub = Hub(options.endpoint)
    wanted = [one for one in read(text) if not options.names or one.name in options.names]
    findings = [check(entry, hub) for entry in wanted]
    for line in _table(findings):
        print(line)
    if options.write:
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        options.catalogue.write_text(written(text, findings, day), encoding="utf-8")
    return int(any(finding.faults for finding in findings))


def _whole_sizes(repository: Repository) -> dict[str, int]:
    """Bytes by file, the parts of a split one added up under the name of the whole."""
    sizes: dict[str, int] = {}
    for name, size in repository.sizes.items():
        whole = _SPLIT.sub("", name)
        sizes[whole] = sizes.get(whole, 0) + size
    return sizes


def _table(findings: Sequence[Finding]) -> Iterator[str]:
    width = max((len(finding.entry.name) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.entry.name:{width}}  {'; '.join(finding.faults) or 'agrees'}"


if __name__ == "__main__":
    sys.exit(main())
