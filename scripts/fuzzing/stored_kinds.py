"""Fuzzes specchat's binary files: n-grams, prompt caches, the index of chats."""

import hashlib
import struct
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np

from app.learned.ngram_memory import NgramFile, NgramMemory
from app.prompt_cache.saved_states import SavedStates
from decoding.drafters.ngram import NgramStatistics, Passage
from decoding.drafters.retrieval.corpus import Corpus, forget
from decoding.drafters.retrieval.segment_file import DEPTH, Document, Note
from scripts.fuzzing.damage import damaged
from scripts.fuzzing.kind import READ, REBUILT

_N_VOCAB = 500
_FINGERPRINT = "a" * 24
_KEY = bytes(range(32))


class NgramKind:
    """N-gram statistics: read, drafted from, updated and saved."""

    name = "ngram"
    file_name = f"{_FINGERPRINT}.ngrams"

    def samples(self, folder: Path) -> Sequence[bytes]:
        found: list[bytes] = []
        for length in (40, 3000):
            statistics = NgramStatistics()
            statistics.learn(
                Passage([Random(n // 3).randrange(_N_VOCAB) for n in range(length)], 0)
            )
            file = NgramFile(folder / self.file_name, _FINGERPRINT, _N_VOCAB)
            file.write(statistics)
            found.append(file.path.read_bytes())
        return found

    def damage(self, good: bytes, random: Random) -> bytes:
        """Half of the files get a valid checksum, so that their content is parsed."""
        data = damaged(good, random)
        if random.random() < 0.5 and len(data) > 12:
            data = data[:8] + struct.pack("<I", zlib.crc32(data[12:])) + data[12:]
        return data

    def read(self, path: Path) -> str:
        memory = NgramMemory(NgramFile(path, _FINGERPRINT, _N_VOCAB))
        for token in range(20):
            memory.drafter.propose([1, 2, 3, token], 4)
        memory.drafter.commit(list(range(1, 30)))
        memory.keep()
        memory.save()
        return REBUILT if memory.note else READ


class SavedStateKind:
    """Saved prompt caches: found by key, read and evicted."""

    name = "saved-state"
    file_name = f"{_KEY.hex()[:16]}-{'0' * 16}.state"

    def samples(self, folder: Path) -> Sequence[bytes]:
        states = SavedStates(folder)
        for count in (3, 700):
            state = np.frombuffer(Random(count).randbytes(30_000), np.uint8)
            states.save(_KEY, list(range(count)), state, lambda: True)
        return [path.read_bytes() for path in sorted(folder.glob("*.state"))]

    def damage(self, good: bytes, random: Random) -> bytes:
        """Some files get valid checksums."""
        data = bytearray(damaged(good, random))
        if random.random() < 0.5 and len(data) >= 88:
            count = struct.unpack_from("<Q", data, 72)[0]
            end = 88 + 4 * count
            if end + 32 <= len(data):
                if random.random() < 0.5:
                    data[40:72] = hashlib.sha256(data[end + 32 :]).digest()
                    struct.pack_into("<Q", data, 80, len(data) - end - 32)
                data[end : end + 32] = hashlib.sha256(data[:end]).digest()
        return bytes(data)

    def read(self, path: Path) -> str:
        states = SavedStates(path.parent)
        whole = [states.read(saved) is not None for saved in states.of(_KEY)]
        states.tidy()
        return READ if any(whole) else REBUILT


class IndexKind:
    """Index of chats: opened, searched, checked, merged, and a chat removed."""

    name = "index"
    file_name = f"{'0' * 32}.segment"

    def samples(self, folder: Path) -> Sequence[bytes]:
        found: list[bytes] = []
        for count in (30, 2000):
            place = folder / str(count)
            with closing(Corpus(place, _KEY)) as corpus:
                random = Random(count)
                documents = [
                    Document(
                        Note(number, bytes([number]) * 16, 1.0, 2.0),
                        np.array([random.randrange(40) for _ in range(count)], np.uint32),
                    )
                    for number in (1, 2, 3)
                ]
                list(corpus.add(documents))
            found += [path.read_bytes() for path in place.iterdir()]
        return found

    def damage(self, good: bytes, random: Random) -> bytes:
        """Some files get valid checksums of the head and the rest."""
        data = bytearray(damaged(good, random))
        head = struct.calcsize("=8sI32sIIII")
        if random.random() < 0.6 and len(data) >= head:
            end = head + 48 * struct.unpack_from("=I", data, 44)[0]
            if end + 4 <= len(data):
                struct.pack_into("=I", data, head - 4, zlib.crc32(data[end + 4 :]))
                struct.pack_into("<I", data, end, zlib.crc32(data[:end]))
        return bytes(data)

    def read(self, path: Path) -> str:
        folder = path.parent / "vocabulary"
        folder.mkdir()
        path = path.rename(folder / path.name)
        with closing(Corpus(folder, _KEY)) as corpus:
            for start in range(0, 40, 7):
                corpus.find([start % 40, 1, 2, 3] * DEPTH, 1, 8)
                corpus.find([start % 40], 1, 8)
            corpus.notes()
            list(corpus.check())
            corpus.tidy()
            corpus.find([1, 2, 3], 1, 8)
            list(corpus.merge())
            corpus.forget_all_but([1, 2])
            outcome = REBUILT if corpus.faults else READ
        forget(path.parent.parent, 1)
        return outcome
