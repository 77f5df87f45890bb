"""Measure how often a predicted text is right after each number of matching tokens.

Run: `python -m scripts.prediction.measure_matches [FOLDER]`.

Source files of a folder are cut into parts of 40 lines, in each of which one to three lines are
edited at random: a word or a number changes, or a line is left out, inserted or moved. The edited
part is the answer, the original the prediction; both are divided into tokens by the bundled model.
No model runs. Every token that would be drafted next is judged, as if each step emitted one.
"""

import argparse
import random
import re
from collections import Counter
from pathlib import Path

from backends import llamacpp
from decoding.drafters.predicted_text import PredictedText
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from models.stores.available_models import demo_path

_LINES = 40
_WORDS = ("value", "total_count", "it", "settings", "first_name", "17", "4.5", "result")


def main() -> None:
    """Print the share of right tokens by evidence class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--most", type=int, default=300, help="parts")
    arguments = parser.parse_args()
    demo = demo_path()
    assert demo is not None
    tokenizer = llamacpp.load(demo).tokenizer
    chance = random.Random(0)
    right: Counter[int] = Counter()
    judged: Counter[int] = Counter()
    for original in _parts(arguments.folder, arguments.most, chance):
        predicted = tokenizer.encode(original, special=False)
        answer = tokenizer.encode(edited(original, chance), special=False)
        drafter = PredictedText(predicted, begins_at=0)
        drafter.begin([], Sampler(SamplingSettings()))
        for place, token in enumerate(answer):
            drafter.commit(answer[:place])
            draft = drafter.propose(answer[:place], 1)
            if draft.tokens:
                judged[draft.evidence[0]] += 1
                right[draft.evidence[0]] += draft.tokens[0] == token
    for evidence in sorted(judged):
        share = right[evidence] / judged[evidence]
        print(f"class {evidence}: {share:.3f} of {judged[evidence]:,}")


def _parts(folder: Path, most: int, chance: random.Random) -> list[str]:
    """Parts of the source files below a folder, in random order."""
    parts: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        parts += ["".join(lines[at : at + _LINES]) for at in range(0, len(lines) - _LINES, _LINES)]
    chance.shuffle(parts)
    return parts[:most]


def edited(text: str, chance: random.Random) -> str:
    """A text with one to three of its lines edited."""
    lines = text.splitlines(keepends=True)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines.insert(chance.randrange(len(lines)), lines.pop(at))
            case _:
                lines[at] = _reworded(lines[at], chance)
    return "".join(lines)


def _reworded(line: str, chance: random.Random) -> str:
    words = re.findall(r"\w+", line)
    if not words:
        return line
    return line.replace(chance.choice(words), chance.choice(_WORDS), 1)


if __name__ == "__main__":
    main()
