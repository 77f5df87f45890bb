"""What the drafter ngram gains: `python -m scripts.measure_ngram [REPLIES]`.

REPLIES is a file of replies, one JSON object a line, made if it is missing: the bundled model
answers the prompts of the bench, once at temperature 0 and with five seeds at 0.8. One half is
learned, the other drafted for, in two ways: the same questions with other seeds, and other
questions. Last the second half is replayed under the controller, at given costs of passes.
"""

import argparse
import json
import statistics as statistics_of
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.bench.suite import SUITES, tasks
from app.learned.ngram_memory import NgramFile
from backends import llamacpp
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import LONGEST, ORDERS, Ngram, NgramStatistics, Passage
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from models.stores.available_models import demo_path

# Replies of the bundled model to the prompts of the bench, recorded in a file for replay.
#
# One JSON object a line: once at temperature 0 and with five seeds at 0.8.

_SEEDS = 6
_TOKENS = 192


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the model. number: of its prompt among those of a kind."""

    kind: str
    number: int
    seed: int
    temperature: float
    prompt: list[int]
    reply: list[int]

    @property
    def text(self) -> list[int]:
        """Prompt and reply."""
        return self.prompt + self.reply


def recorded(path: Path) -> list[Reply]:
    """The replies of a file, made if it is missing."""
    if not path.exists():
        _record(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Reply(**json.loads(line)) for line in lines]


def _record(path: Path) -> None:
    """Let the bundled model answer."""
    demo = demo_path()
    assert demo is not None
    model = llamacpp.load(demo)
    context, process = model.open(2048), TemplateProcess()
    template = ChatTemplate(model.tokenizer, process)
    with path.open("w", encoding="utf-8") as file:
        for seed in range(_SEEDS):
            settings = SamplingSettings(0.8 if seed else 0.0, seed=seed)
            for task in tasks(SUITES["full"]):
                prompt = list(template.prompt([Message("user", task.text)]).tokens)
                limits = Limits(_TOKENS, model.tokenizer.end_tokens)
                events = generate(context, prompt, settings, limits)
                said = [one for event in events if isinstance(event, Step) for one in event.tokens]
                reply = Reply(task.kind, task.number, seed, settings.temperature, prompt, said)
                file.write(json.dumps(asdict(reply)) + "\n")
    process.close()
    model.close()


_LONGEST_DRAFT = 8
_CURVES = {
    "processor": {1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7},
    "GPU": {1: 1.0, 16: 1.3},
}
"""Costs of passes in plain steps: SmolLM2-135M in Q4_0 on two cores, and a flat curve."""
_SAMPLER = Sampler(SamplingSettings())


@dataclass(slots=True)
class Count:
    """Guesses, how many came true, and the sum of what was expected."""

    judged: int = 0
    right: int = 0
    expected: float = 0.0

    def add(self, right: bool, expected: float = 0.0) -> None:
        """One more guess."""
        self.judged += 1
        self.right += right
        self.expected += expected

    def __str__(self) -> str:
        return f"{self.right / self.judged:.3f} of {self.judged:,}" if self.judged else "none"


def halves(
    replies: Sequence[Reply], is_first: Callable[[Reply], bool]
) -> tuple[list[Reply], list[Reply]]:
    """Those to be learned, and those to be drafted for."""
    return [one for one in replies if is_first(one)], [one for one in replies if not is_first(one)]


def learned(replies: Sequence[Reply]) -> tuple[NgramStatistics, float]:
    """What replies teach, and the seconds of processor time for each of their tokens."""
    statistics, started = NgramStatistics(), time.process_time()
    for reply in replies:
        statistics.learn(Passage(reply.text, len(reply.prompt)))
    count = sum(len(reply.reply) for reply in replies)
    return statistics, (time.process_time() - started) / count


def places(replies: Sequence[Reply]) -> Iterator[tuple[list[int], int]]:
    """Each text with the position of each of its reply's tokens."""
    for reply in replies:
        for end in range(len(reply.prompt), len(reply.text)):
            yield reply.text, end


def judge_guesses(statistics: NgramStatistics, replies: Sequence[Reply]) -> None:
    """Print how often the next token is guessed, learning each after it was judged."""
    by_order = {order: Count() for order in ORDERS}
    by_confidence = [Count() for _ in range(10)]
    everything = Count()
    for text, end in places(replies):
        guess = statistics.guess(text[end - LONGEST : end])
        everything.add(guess is not None and guess.token == text[end])
        if guess is not None:
            right = guess.token == text[end]
            by_order[guess.order].add(right)
            by_confidence[int(10 * guess.confidence)].add(right, guess.confidence)
        statistics.learn(Passage(text[end - LONGEST : end + 1], LONGEST))
    print(f"  next token guessed        {everything}")
    for order, count in by_order.items():
        print(f"  by a context of {order}         {count}")
    print("  confidence: expected, found, how many")
    for count in filter(lambda one: one.judged, by_confidence):
        found = f"{count.right / count.judged:.3f}  {count.judged:,}"
        print(f"    {count.expected / count.judged:.3f}  {found}")


def judge_drafts(statistics: NgramStatistics, replies: Sequence[Reply]) -> None:
    """Print what becomes of drafts that are all sent, whether they pay or not."""
    drafter = Ngram(statistics)
    by_length = {length: Count() for length in range(1, _LONGEST_DRAFT + 1)}
    by_position = [Count() for _ in range(_LONGEST_DRAFT)]
    spent = drafted = steps = tokens = 0.0
    longest: list[float] = []
    for reply in replies:
        text, end = reply.text, len(reply.prompt)
        drafter.begin(text[:end], _SAMPLER)
        while end < len(text):
            history = text[:end]
            drafter.commit(history)
            started = time.process_time()
            draft = drafter.propose(history, _LONGEST_DRAFT).tokens
            spent += (seconds := time.process_time() - started)
            if len(draft) == _LONGEST_DRAFT:
                longest.append(seconds)
            accepted = _accepted(draft, text[end:])
            for place in range(min(accepted + 1, len(draft), len(text) - end)):
                by_position[place].add(place < accepted)
            for place in range(len(draft)):
                by_length[len(draft)].add(place < accepted)
            drafted += len(draft)
            steps += 1
            tokens += min(accepted + 1, len(text) - end)
            end += accepted + 1
    print(f"  tokens per step, all sent {tokens / steps:.2f}, drafted {drafted / steps:.2f}")
    print(f"  a proposal takes          {1e6 * spent / steps:.0f} µs of processor time")
    print(
        f"  one of {_LONGEST_DRAFT} tokens           {1e6 * statistics_of.median(longest):.0f} µs"
    )
    for length, count in by_length.items():
        print(f"  drafts of {length}: accepted     {count}")
    for place, count in enumerate(by_position, start=1):
        print(f"  token {place}, those before right {count}")


def _accepted(draft: Sequence[int], following: Sequence[int]) -> int:
    """How many tokens of a draft the model said."""
    same = 0
    while same < min(len(draft), len(following)) and draft[same] == following[same]:
        same += 1
    return same


def replayed(
    drafters: Sequence[ManagedDrafter], replies: Sequence[Reply], points: dict[int, float]
) -> float:
    """Tokens in the time of a plain step, if these drafters drafted under the controller."""
    controller = Controller(drafters, CostModel(points), n_vocab=1 << 20)
    tokens = seconds = 0.0
    for reply in replies:
        text, end = reply.text, len(reply.prompt) + 1
        controller.begin(text[: len(reply.prompt)], Sampler(SamplingSettings(reply.temperature)))
        while end < len(text):
            controller.commit(text[:end])
            draft = controller.propose(text[:end], len(text) - end - 1)
            accepted = _accepted(draft.tokens, text[end:])
            said = tuple(text[end : end + accepted + 1])
            cost = CostModel(points).relative(1 + len(draft))
            step = Step(said, draft.drafter, len(draft), accepted, 0.0, cost, cost, 0.0)
            controller.observe(step)
            tokens, seconds, end = tokens + len(said), seconds + cost, end + len(said)
    return tokens / seconds


def judge_speed(first: Sequence[Reply], second: Sequence[Reply]) -> None:
    """Print the speed against plain decoding, simulated at given costs."""
    for name, points in _CURVES.items():
        lookup = replayed([ManagedDrafter(PromptLookup())], second, points)
        both = [ManagedDrafter(PromptLookup()), ManagedDrafter(Ngram(learned(first)[0]))]
        with_ngram = replayed(both, second, points)
        print(f"  {name}: lookup {lookup:.3f}, with ngram {with_ngram:.3f} × plain, simulated")


def full() -> NgramStatistics:
    """Statistics that know as much as they can."""
    statistics = NgramStatistics()
    tokens = np.random.default_rng(0).integers(0, 50_000, 600_000).tolist()
    statistics.learn(Passage(tokens, 0))
    return statistics


def judge_file(statistics: NgramStatistics) -> None:
    """Print the size of the file, and what writing and reading it take."""
    with TemporaryDirectory() as folder:
        file = NgramFile(Path(folder) / "a.ngrams", "a" * 24, 1 << 20)
        started = time.perf_counter()
        file.write(statistics)
        written = time.perf_counter()
        file.read()
        read = time.perf_counter()
        size = file.path.stat().st_size
    entries = statistics.table.contents.slots.size
    print(f"  {entries:,} entries, {size:,} bytes on disk")
    print(
        f"  written in {1e3 * (written - started):.1f} ms, read in {1e3 * (read - written):.1f} ms"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("replies", nargs="?", type=Path, default=Path("replies.jsonl"))
    replies = recorded(parser.parse_args().replies)
    seeds = len({reply.seed for reply in replies})
    questions = sorted({(reply.kind, reply.number) for reply in replies})
    splits: dict[str, Callable[[Reply], bool]] = {
        "the same questions, other seeds": lambda one: one.seed < seeds // 2,
        "other questions": lambda one: questions.index((one.kind, one.number)) % 2 == 0,
    }
    for name, is_first in splits.items():
        first, second = halves(replies, is_first)
        counts = [sum(len(one.reply) for one in half) for half in (first, second)]
        print(f"{name}: {counts[0]:,} tokens learned, {counts[1]:,} drafted for")
        statistics, seconds = learned(first)
        print(f"  a learned token takes     {1e6 * seconds:.0f} µs of processor time")
        judge_guesses(statistics, second)
        judge_file(statistics)
        judge_drafts(learned(first)[0], second)
        judge_speed(first, second)
    print("a full table:")
    judge_file(full())


if __name__ == "__main__":
    main()
