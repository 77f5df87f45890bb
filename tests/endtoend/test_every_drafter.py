"""Every way to draft for every kind of model: greedy replies are plain decoding's.

The models are tiny and say few tokens, so that some of what is drafted is accepted. After each
reply, a head that drafted for it says the same as one that reads the whole text anew: of what was
rejected nothing is left, and of what was accepted nothing is missing.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")

from app.drafting import draft_spec
from app.drafting.drafter_handle import DrafterEnvironment
from app.engine.session_drafters import build
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends import llamacpp
from backends.base import BlockContext, Context, Logits, ModelError
from backends.files import attention as rollback_depth
from backends.heads.hidden_states import HiddenStates
from backends.llamacpp.heads.chain import ChainContext
from backends.llamacpp.running_state import RunningState
from decoding.checks.distribution_check import divergences
from decoding.draft import Drafter
from decoding.drafters.base import Reader
from decoding.drafters.cascade import Cascade, Vote
from decoding.drafters.draft_model import DraftModel, drafter_of_head
from decoding.drafters.lookup import PromptLookup
from decoding.drafters.ngram import Ngram
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.estimation.cost import CostModel, Measured
from decoding.generation import Limits
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.corpora import corpus_of, document
from tests.fixtures.first_hit import FirstHit
from tests.fixtures.hybrids import disturbed
from tests.fixtures.replied import prompts, replied, said
from tests.fixtures.retimed import retimed
from tests.fixtures.rounding import bound
from tests.fixtures.tiny.head_pair import N_CTX, Pair, files_saying_few, opened
from tests.fixtures.tiny.kinds import Tiny

KINDS = ("qwen35", "nemotron_h_moe", "lfm2-dspark", "gemma4-assistant", "eagle3", "dflash",
         "dflash2", "dspark", "glm4moe", "step35")  # fmt: skip
"""Heads, each with its model. The first three models have a running state, and of the last head
three layers draft in turn."""

AS_LARGE = ("nemotron_h_moe", "gemma4-assistant")
"""Heads that are about as large as their tiny models, so that `auto` expects no gain of them."""

PROMPTS, OF_NIGHTLY, TOKENS = 6, 12, 128
GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(TOKENS, frozenset())
NEAR_TIE = 0.03
"""Logits further apart than this cannot have been turned by rounding: passes over several tokens,
and caches in the order of a tree's branches, change logits of 6 by up to 0.0115. Of 95,232 tokens
13 were such ties, of at most 0.0062."""

OF_HEAD = bound(0.01, 0.05)
"""What rounding changes of a head's logits of 6 between a reply that it followed and the same text
read at once: 0.0035 was the most of 240 replies, 0.013 with `--card`."""

NO_COSTS = CostModel(Measured({1: 1.0, 8: 1.01}))
ERRS = 20
"""Every so many tokens, what retrieval remembers of a reply is wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pair in a folder of its own, prompts, and plain decoding's replies to them."""

    kind: str
    folder: Path
    target: Path
    pair: Pair
    prompts: Sequence[list[int]]
    plain: Sequence[list[int]]


@contextmanager
def case(kind: str, tiny: Tiny, folder: Path, count: int) -> Iterator[Case]:
    target, head = files_saying_few(kind, tiny, folder)
    if head.parent != folder:
        head = Path(shutil.copy(head, folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollback_depth, "_SHARE", 1)  # of tiny weights, which no state fits into
        with opened(target, head) as pair:
            asked = prompts(OF_NIGHTLY)[-count:]
            plain = [said(replied(pair.context, one, GREEDY, LIMITS, None)) for one in asked]
            yield Case(kind, folder, target, pair, asked, plain)


@pytest.fixture(scope="module")
def every(
    request: pytest.FixtureRequest, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    kind, _, count = request.param.partition("/")
    with case(kind, tiny, tmp_path_factory.mktemp(kind), int(count or PROMPTS)) as found:
        yield found


Make = Callable[[Case, ExitStack], Drafter]


def lookup(_: Case, __: ExitStack) -> Drafter:
    return FirstHit([PromptLookup(min_match=1)], max_draft=7)


def ngram(_: Case, __: ExitStack) -> Drafter:
    return FirstHit([Ngram()], max_draft=7)


def retrieval(found: Case, stack: ExitStack) -> Drafter:
    """Of what was said before, with errors."""
    texts: list[list[int]] = []
    for prompt, reply in zip(found.prompts, found.plain, strict=True):
        texts.append([token + (place % ERRS == 0) for place, token in enumerate(prompt + reply)])
    documents = [document(number, text) for number, text in enumerate(texts)]
    corpus = stack.enter_context(closing(corpus_of(found.folder / "corpus", documents)))
    return FirstHit([Retrieval(corpus)], max_draft=7)


def model(found: Case, stack: ExitStack) -> Drafter:
    """A disturbed copy of the model, which is right in part."""
    folder = found.folder / "copy"  # where no session looks for heads
    folder.mkdir(exist_ok=True)
    path = disturbed(found.target, folder / "disturbed.gguf", 0.2)
    copy = stack.enter_context(closing(llamacpp.load(path, threads=1)))
    return DraftModel("model", copy.open(N_CTX), n_vocab=copy.info.n_vocab, max_draft=4)


def head(found: Case, _: ExitStack) -> Drafter:
    drafts, n_vocab = found.pair.drafts, found.pair.model.info.n_vocab
    if isinstance(drafts, BlockContext):
        return drafter_of_head("head", drafts, n_vocab=n_vocab)
    return DraftModel("head", drafts, n_vocab=n_vocab, max_draft=4)


def head_and_ngrams(found: Case, stack: ExitStack) -> Drafter:
    """A cascade; a vote with heads that draft blocks, which no cheaper drafter can draft for."""
    drafts, n_vocab = found.pair.drafts, found.pair.model.info.n_vocab
    if isinstance(drafts, BlockContext):
        return Vote("vote", [PromptLookup(min_match=1), Ngram(), head(found, stack)])
    cheap = [ManagedDrafter(PromptLookup(min_match=1)), ManagedDrafter(Ngram())]
    below = Controller(cheap, NO_COSTS, n_vocab)
    return Cascade("cascade", drafts, below, NO_COSTS, n_vocab=n_vocab, max_draft=4)


def auto(found: Case, stack: ExitStack) -> Drafter:
    """What a session chooses that finds the head beside the model."""
    paths, pair = Paths.of_this_user(), found.pair
    context = TargetContext(pair.model, pair.context)
    environment = DrafterEnvironment(pair.model, context, paths, 1, None, lambda _: None)
    drafting = stack.enter_context(closing(build(draft_spec.parse("auto", paths), environment)))
    assert any(handle.model for handle in drafting.handles) is (found.kind not in AS_LARGE)
    assert drafting.controller is not None
    return retimed(drafting.controller)


DRAFTERS: dict[str, Make] = {
    "lookup": lookup,
    "ngram": ngram,
    "retrieval": retrieval,
    "model": model,
    "head": head,
    "head and n-grams": head_and_ngrams,
    "auto": auto,
}
OF_THE_HEAD = ("head", "head and n-grams")

WAYS = [
    (kind, name)
    for kind in KINDS
    for name in DRAFTERS
    if kind not in ("dflash2", "dspark") or name in (*OF_THE_HEAD, "auto")
]
"""Every kind with every drafter; without a head, those of one model are the same."""

WHOLE = [
    pytest.param(f"{kind}/{OF_NIGHTLY}", name, marks=pytest.mark.nightly) for kind, name in WAYS
]


def said_by(drafts: Context, text: Sequence[int]) -> Logits:
    """The first row that a head drafts from after a text."""
    reader = Reader(drafts)
    if not isinstance(drafts, BlockContext):
        *_, (_, rows) = reader.rows(text)
        return rows[-1].copy()
    drafts.forward(reader.pending(text, drafts.n_chunk), 0)
    row = drafts.draft(1)([])
    assert row is not None
    return row.copy()


def changed(pair: Pair, text: Sequence[int]) -> float:
    """How far the head's logits after a text are from those of one that reads it anew."""
    ours = said_by(pair.drafts, text)
    with closing(pair.model.open(N_CTX)) as context:
        drafts = pair.head.open_beside(context)
        for start in range(0, len(text) - 1, 60):
            context.forward(text[start : min(start + 60, len(text) - 1)], 0)
        theirs = said_by(drafts, text)
    known = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), known)
    return float(np.abs(ours[known] - theirs[known]).max())


def check(found: Case, drafter: Drafter, *, is_of_head: bool) -> tuple[int, int]:
    """Numbers of tokens drafted and accepted in replies, each of which is the model's own."""
    drafted = accepted = 0
    context = found.pair.context
    for prompt, plain in zip(found.prompts, found.plain, strict=True):
        steps = replied(context, prompt, GREEDY, LIMITS, drafter)
        reply = said(steps)
        drafted += sum(step.drafted for step in steps)
        accepted += sum(step.accepted for step in steps)
        assert len(reply) == TOKENS
        if is_of_head:
            assert changed(found.pair, [*prompt, *reply]) < OF_HEAD
        if reply != plain:
            assert all(one.margin < NEAR_TIE for one in divergences(context, prompt, reply))
    return drafted, accepted


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays", "heads_are_trusted")
@pytest.mark.parametrize(("every", "name"), [*WAYS, *WHOLE], indirect=["every"])
def test_greedy_replies_are_plain_ones(every: Case, name: str) -> None:
    with ExitStack() as stack:
        drafter = DRAFTERS[name](every, stack)
        drafted, accepted = check(every, drafter, is_of_head=name in OF_THE_HEAD)
    assert 0 < accepted < drafted


def shifted_rows(patch: pytest.MonkeyPatch) -> None:
    """Of a verification pass, each token gets the row of another."""
    real = HiddenStates._append

    def append(states: HiddenStates, start: int, rows: Logits) -> None:
        real(states, start, np.roll(rows, 1, axis=0) if 1 < len(rows) < 9 else rows)

    patch.setattr(HiddenStates, "_append", append)


def kept_guesses(patch: pytest.MonkeyPatch) -> None:
    """A head keeps what it made of its own states, where the text went on so."""
    patch.setattr(ChainContext, "rollback_to", lambda context, length: min(length, context.length))


def short_rollback(patch: pytest.MonkeyPatch) -> None:
    """A model with a running state takes back one token less than was rejected."""
    real = RunningState.go_back

    def go_back(state: RunningState, length: int, held: int) -> int:
        real(state, min(length + 1, held) if length else 0, held)
        return length

    patch.setattr(RunningState, "go_back", go_back)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("qwen35", short_rollback),
        ("lfm2-dspark", short_rollback),
        ("qwen35", shifted_rows),
        ("eagle3", shifted_rows),
        ("step35", shifted_rows),
        ("dflash", shifted_rows),
        ("glm4moe", kept_guesses),
        ("step35", kept_guesses),
    ],
)
def test_a_wrong_program_is_caught(
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    wrong: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """By a logit that no rounding explains, or by the engine, to which positions are missing."""
    with case(kind, tiny, tmp_path, 2) as found, ExitStack() as stack:
        drafter = head(found, stack)
        check(found, drafter, is_of_head=True)
        wrong(monkeypatch)
        with pytest.raises((AssertionError, ModelError)):
            check(found, drafter, is_of_head=True)
