"""Measures the index of earlier chats at full size: building, looking up, memory.

Run: python -m scripts.measure_index [--tokens 10000000]

The text is random and repetitive: phrases drawn by a power law, so that most lookups find long
matches. Each figure of memory is of a fresh process that does nothing but look up.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.drafters.retrieval.segment_file import STAMP_BYTES, Document, Note
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

VOCABULARY = bytes(32)
CHAT_TOKENS = 2000
N_VOCAB = 49_152
BATCH = 128
"""Chats indexed at once."""

LOOKUPS = 5000


def texts(seed: int) -> Iterator[list[int]]:
    """Chats without end; those of every seed share their phrases."""
    generator = np.random.default_rng(0)
    phrases = [
        generator.integers(0, N_VOCAB, generator.integers(3, 40)).tolist() for _ in range(50_000)
    ]
    generator = np.random.default_rng(seed)
    while True:
        text: list[int] = []
        while len(text) < CHAT_TOKENS:
            text += phrases[min(int(generator.zipf(1.2)), len(phrases)) - 1]
        yield text[:CHAT_TOKENS]


def build(folder: Path, tokens: int) -> None:
    """Index as many tokens and merge, and say what it took."""
    corpus = Corpus(folder, VOCABULARY)
    chats = texts(1)
    started, longest = time.process_time(), 0.0
    for first in range(0, tokens // CHAT_TOKENS, BATCH):
        numbers = range(first, min(first + BATCH, tokens // CHAT_TOKENS))
        batch = [
            Document(
                Note(number, bytes(STAMP_BYTES), 3600.0 * number, 0.0),
                np.array(next(chats), np.uint32),
            )
            for number in numbers
        ]
        for work in (corpus.add(batch), corpus.merge()):
            before = time.process_time()
            for _ in work:
                longest = max(longest, time.process_time() - before)
                before = time.process_time()
    peak = psutil.Process().memory_info()
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"built in {time.process_time() - started:.0f} s of processor time, with all merges")
    print(f"the longest piece of work between two questions of a user: {longest:.2f} s")
    print(f"{len(list(folder.iterdir()))} segments, {size / 1e6:.0f} MB on disk")
    print(f"memory of the process that built them: {peak.rss / 1e6:.0f} MB")


def look_up(folder: Path) -> None:
    """Look up after every token of new text, and say how long that took and what it held."""
    chats = texts(2)
    text = [token for _ in range(1 + LOOKUPS // CHAT_TOKENS) for token in next(chats)]
    process = psutil.Process()
    before = process.memory_info().rss
    drafter = Retrieval(Corpus(folder, VOCABULARY))
    drafter.begin(text[:20], Sampler(SamplingSettings()))
    spent = time.process_time()
    seconds: list[float] = []
    drafted = resident = 0
    for end in range(20, LOOKUPS):
        history = text[:end]
        started = time.perf_counter()
        drafted += len(drafter.propose(history, 15))
        seconds.append(time.perf_counter() - started)
        if end % 10 == 0:
            resident = max(resident, process.memory_info().rss - before)
    spent = (time.process_time() - spent) / len(seconds)
    middle, high = np.percentile(seconds, (50, 95))
    print(f"lookup: median {1e3 * middle:.3f} ms, 95 % below {1e3 * high:.3f} ms")
    print(f"processor time of a lookup: {1e3 * spent:.3f} ms")
    print(f"tokens proposed per lookup: {drafted / len(seconds):.1f}")
    print(f"resident memory added by the index, at most: {resident / 1e6:.0f} MB")


def main() -> None:
    """Build an index in a scratch folder, then look up in another process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="an index built before, or to be kept")
    parser.add_argument("--look-up", action="store_true", help="only look up in --folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "index"
        if given.look_up:
            look_up(folder)
            return
        build(folder, given.tokens)
        command = [sys.executable, "-m", "scripts.measure_index", "--folder", folder, "--look-up"]
        subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    main()
