"""Fuzzes specchat's binary files: n-grams, prompt caches, the index of chats."""

import hashlib
import json
import random as chance
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np

from app.chat.attachments import Attachment, AttachmentKind
from app.history import History
from app.history.export import as_json, as_markdown
from app.learned.acceptance_memory import AcceptanceMemory, TrialResult, TrialResults
from app.learned.calibrations import Calibrations
from app.learned.ngram_memory import NgramFile, NgramMemory
from app.learned.tuned_recipe import Tuned, TuningResults, remember, tuned, tuned_file
from app.paths import Paths
from app.prompt_cache.saved_states import SavedStates
from app.settings import file
from app.settings.answering import restored
from backends.base import ModelInfo, Rollback
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from backends.engines.engine_facts import Runner
from decoding.checks.agreement import Reply
from decoding.drafters.ngram import NgramStatistics, Passage
from decoding.drafters.retrieval.corpus import Corpus, forget
from decoding.drafters.retrieval.segment_file import DEPTH, Document, Note
from decoding.estimation.acceptance import Acceptance
from models.hub import repository_cache as receipts
from models.metadata.identity import content_hash
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import Tried
from scripts.fuzzing.campaign import READ, REBUILT
from scripts.fuzzing.damage import damaged, damaged_text
from tests.fixtures.tokenizers import ByteTokenizer

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


_WRITTEN = """\
theme = "nord"   # mine
temperature = 0.5
top_k = 40
system = \"\"\"
Be "brief".
\"\"\"
[keys]
new = "f10"
[presets.exact]
system = 'Answer exactly.'
temperature = 0.0
max_tokens = 200
"""


class SettingsKind:
    """The settings file, read and then edited as by the settings screen."""

    name = "settings"
    file_name = "config.toml"

    def samples(self, folder: Path) -> Sequence[bytes]:
        path = folder / self.file_name
        file.save(path, {"temperature": 0.2, "model": "demo", "seed": 7, "offline": True})
        return [_WRITTEN.encode(), path.read_bytes()]

    def damage(self, good: bytes, random: Random) -> bytes:
        return damaged_text(good, random)

    def read(self, path: Path) -> str:
        file.examined(path)
        file.save(path, {"panel": "hidden"})
        return READ


_RECIPE = Recipe.parse("q4_0")


class JsonKind:
    """One damaged file at the path of every such file; it has the schema of one of them."""

    name = "json"
    file_name = "kept.json"

    def samples(self, folder: Path) -> Sequence[bytes]:
        paths, info = _place(folder)
        calibration = {
            "schema": 3, "engine": "e", "device": "d", "threads": 2, "times": 2, "switching": 0.01,
            "seconds": {"1": 0.01, "2": 0.015, "4": 0.02}, "unsure": {"2": 0.1},
        }  # fmt: skip
        TrialResults(info, paths).add("drafter", TrialResult(0.4))
        memory = AcceptanceMemory(info.path, paths)
        memory.remember("key", Acceptance({"kind": (3.0, 5.0)}), {"name": "n", "path": "p.gguf"})
        memory.save()
        remember(Tuned(_RECIPE, 0.5, 0.3), info, paths)
        results = TuningResults(info, paths)
        results.add_replies([Reply((1, 2), (3, 4))])
        results.add(_RECIPE, Tried(0.5, 0.3))
        receipts.record(paths.downloads, "org/name", "commit", ["a.gguf", "b.gguf"])
        content_hash(info.path, folder / "hashes.json")
        return [
            json.dumps(calibration).encode(),
            json.dumps({"temperature": 0.5, "top_k": 3, "preset": "exact"}).encode(),
            *(path.read_bytes() for path in sorted(folder.rglob("*.json*")) if path.is_file()),
        ]

    def damage(self, good: bytes, random: Random) -> bytes:
        return damaged_text(good, random)

    def read(self, path: Path) -> str:
        data = path.read_bytes()
        paths, info = _place(path.parent)
        runner = Runner.of(info)
        calibrations = Calibrations(paths, _silent)
        for place in (
            calibrations.file(info), tuned_file(info, paths), paths.downloads,
            TuningResults(info, paths).path, *_named(info, paths),
        ):  # fmt: skip
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        calibrations.known_drafter(info.path, runner)
        TrialResults(info, paths).of("drafter")
        memory = AcceptanceMemory(info.path, paths)
        memory.recall("key")
        memory.known_drafters()
        memory.save()
        tuned(info, paths)
        TuningResults(info, paths)
        receipts.is_ours(paths.downloads, "org/name", "commit", "a.gguf")
        receipts.record(paths.downloads, "org/name", "commit", ["c.gguf"])
        content_hash(info.path, path)
        restored(data.decode(errors="replace"))
        return READ


def _place(folder: Path) -> tuple[Paths, ModelInfo]:
    model = folder / "model.gguf"
    model.write_bytes(b"GGUF")
    info = ModelInfo(
        model, "model", "llama", "Q4_0", 1000, 500, 500, 100, 4, 512, Rollback.ANY,
        "llamacpp", "e", "d", 2,
    )  # fmt: skip
    return Paths(folder / "config", folder / "data", folder / "cache"), info


def _named(info: ModelInfo, paths: Paths) -> list[Path]:
    """Paths of the files of trial results and acceptance, as named by their writers."""
    TrialResults(info, paths).add("drafter", TrialResult(0.4))
    memory = AcceptanceMemory(info.path, paths)
    memory.remember("key", Acceptance({"kind": (3.0, 5.0)}), {})
    memory.save()
    return [*paths.findings.iterdir(), *paths.acceptance.iterdir()]


def _silent(_text: str) -> None: ...


_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
_ODD_TEMPLATES = (
    "\ud800", "{{ '\\ud800' }}", "\ue000", "\ue0000\ue000",
    "{{ '\\ue000' + '9' * 5000 + '\\ue000' }}",
    "\0", "{{ messages[0].content[1:] }}", "{{ 1/0 }}", "{% for x in range(9**9) %}x{% endfor %}",
    "{{ raise_exception('\ud800') }}", "{{ '%c' % 57344 }}", "{{" * 3000, "{% if x %}" * 300,
    "((" * 2000, "{{ 9 ** 9999 }}", "{{ messages | tojson }}", "{{ strftime_now('\ud800%Y') }}",
    "{{ 'x' * 9999999 }}", "{{ [[]] * 99999999 }}",
)  # fmt: skip
_SAID = (
    Message("system", "Be brief."),
    Message("user", "Hi <|im_end|> \ue000 \ue0010\ue001 \ud83d \0 there"),
)


class TemplateKind:
    """Chat templates; a damaged one is refused by name, or the plain form is used, with a note."""

    name = "template"
    file_name = "chat_template.jinja"

    def samples(self, folder: Path) -> Sequence[bytes]:
        del folder
        return [_CHATML.encode()]

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return damaged(good, random)
        text = good.decode()
        for _ in range(random.choice((1, 2))):
            place = random.randrange(len(text) + 1)
            text = text[:place] + random.choice(_ODD_TEMPLATES) + text[place:]
        return text.encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        source = path.read_bytes().decode("utf-8", "surrogateescape")
        with closing(TemplateProcess()) as process:
            prompt = ChatTemplate(ByteTokenizer(source), process).prompt(_SAID)
        assert prompt.tokens or not prompt.note
        prompt.note.encode()
        return REBUILT if prompt.note else READ


_FILE = Attachment(AttachmentKind.FILE, "a.md", "walrus")
_ODD_STATEMENTS = (
    "x'ff00fe'", "CAST(x'ff41' AS TEXT)", "NULL", "''", "1e308", "-1e308", "9e999", "-1",
    "9223372036854775807", "'text'", "zeroblob(100000)", "CAST(x'610062' AS TEXT)",
)  # fmt: skip
_COLUMNS = {
    "chats": (
        "number",
        "title",
        "model",
        "system",
        "created",
        "updated",
        "removed",
        "settings",
        "shown",
    ),
    "messages": (
        "number",
        "chat",
        "role",
        "text",
        "ending",
        "created",
        "parent",
        "shown",
        "lossy",
        "writer",
    ),
    "attachments": ("number", "message", "kind", "name", "text"),
    "queue": ("number", "chat", "text", "attachments"),
}
_STATEMENTS = (
    "DROP TABLE words", "DROP INDEX messages_by_chat", "DROP TABLE messages", "DROP TABLE chats",
    "DELETE FROM chats WHERE number = 1", "DELETE FROM words_data", "DELETE FROM sqlite_schema",
    "PRAGMA user_version = 7", "PRAGMA user_version = 0", "PRAGMA user_version = -9",
    "UPDATE sqlite_schema SET sql = CAST(x'ff' AS TEXT) WHERE name = 'chats'",
    "UPDATE sqlite_schema SET sql = 'CREATE TABLE messages (a)' WHERE name = 'messages'",
    "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'words'",
    "UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'messages'",
    "CREATE TRIGGER more AFTER INSERT ON chats BEGIN INSERT INTO chats (model, system, created,"
    " updated) VALUES (1, 2, 3, 4); END",
)  # fmt: skip


class ChatDatabaseKind:
    """Half of the files have damaged bytes, half have foreign rows and tables."""

    name = "chat-database"
    file_name = "chats.sqlite3"

    def samples(self, folder: Path) -> Sequence[bytes]:
        found: list[bytes] = []
        for seed in range(2):
            path, random = folder / f"{seed}.sqlite3", chance.Random(seed)
            with closing(History.open(path)) as history:
                for _ in range(6):
                    chat = history.create("demo", "be brief", '{"top_k": 3}')
                    for _ in range(random.randrange(20)):
                        words = random.choices(("whale", "ship", "sea"), k=random.randrange(1, 900))
                        role, text = random.choice(("user", "assistant")), " ".join(words)
                        parent = random.choice((0, None))
                        history.add(chat, role, text, parent=parent, attachments=[_FILE])
                        history.enqueue(chat, text, [_FILE])
                history.remove(2)
            found.append(path.read_bytes())
        return found

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return damaged(good, random)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.deserialize(_not_logged(good))
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for _ in range(random.choice((1, 2, 4))):
                try:
                    connection.execute(_statement(random))
                except (sqlite3.Error, UnicodeDecodeError):
                    continue
            return connection.serialize()

    def read(self, path: Path) -> str:
        with closing(History.open(path)) as history:
            news = history.news()
            for chat in history.chats():
                messages = history.path(chat.number)
                history.queue(chat.number)
                history.facts(chat.number)
                as_markdown(chat, messages).encode()
                json.dumps(as_json(chat, messages))
            history.versions()
            history.questions()
            history.chats("whale sh")
            history.removed_last()
            number = history.add(history.create("demo"), "user", "of the whale")
            history.update(number, "of the whale and the ship")
            history.chats("of the ship")
            news += history.news()
        return REBUILT if news else READ


def _not_logged(good: bytes) -> bytes:
    """A database in memory has no log."""
    return good[:18] + b"\1\1" + good[20:]


def _statement(random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(_STATEMENTS)
    table = random.choice(sorted(_COLUMNS))
    column = random.choice(_COLUMNS[table])
    where = random.choice(("", f" WHERE number = {random.randrange(1, 20)}"))
    return f"UPDATE OR IGNORE {table} SET {column} = {random.choice(_ODD_STATEMENTS)}{where}"
