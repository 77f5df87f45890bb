"""A drafter that runs a model, with the target's vocabulary or another one."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from app.builtin_prompts import built_in_prompts
from app.loading.target_context import TargetContext
from backends.base import (
    Context,
    DraftUnavailableError,
    Model,
    OutOfMemoryError,
    Rollback,
    Tokenizer,
)
from decoding.draft import Drafter
from decoding.drafters.cross_vocabulary.shared_tokens import AcrossVocabularies, TextLevel
from decoding.drafters.cross_vocabulary.vocabularies import (
    Follower,
    Retokenizer,
    SharedVocabulary,
    Speller,
    TokenBytes,
    same_control,
)
from decoding.drafters.draft_model import BlockDraft, drafter_of_head
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.trial import MOST_SAID, Guess, guess_of, trial
from models.metadata.identity import require_same_vocabulary

_LEAST_READABLE = 0.9
"""Share of ordinary text that the drafter's vocabulary must be able to spell."""


@dataclass(frozen=True, slots=True)
class VocabularyTranslation:
    """The vocabularies of target and drafter. in_text: share of shared tokens in ordinary text."""

    ours: TokenBytes
    theirs: TokenBytes
    speller: Speller
    their_speller: Speller
    shared: SharedVocabulary
    in_text: float

    @classmethod
    def of(cls, target: Tokenizer, drafter: Tokenizer) -> Self | None:
        """Compare two vocabularies; None if the drafter's cannot spell ordinary text."""
        ours, theirs = TokenBytes.of(target), TokenBytes.of(drafter)
        speller, their_speller = Speller(target, ours), Speller(drafter, theirs)
        text = " ".join(prompt.text for prompt in built_in_prompts()).encode()
        if len(theirs.joined(their_speller.spell(text))) < _LEAST_READABLE * len(text):
            return None
        shared = SharedVocabulary.of(target, ours, drafter, theirs)
        in_text = shared.share_of(speller.spell(text))
        return cls(ours, theirs, speller, their_speller, shared, in_text)

    @property
    def words(self) -> str:
        of_all, in_text = _percent(self.shared.share), _percent(self.in_text)
        return f"{of_all} of its tokens are shared, {in_text} in ordinary text"


def _percent(share: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(100 * share)} %"


def why_no_line(drafter: Drafter, target: Model) -> str:
    """Why a drafter model cannot be one of a cascade, vote or tree, in words."""
    if isinstance(drafter, BlockDraft):
        return f"{drafter.name} drafts whole blocks"
    return f"{drafter.name} has another vocabulary than {target.info.name}"


_MOST_TRIALS = 4
"""Prompts on which a drafter is tried at most: each takes about a second."""

_ENOUGH_SHARED = 0.5
"""Share of the tokens of ordinary text; with fewer shared, drafts are translated as text."""


@dataclass(frozen=True, slots=True)
class DrafterModel:
    """A drafter with its context; note: its peculiarities, in words.

    guess: proposes tokens in a trial, if the vocabulary is not the target's.
    """

    drafter: Drafter
    context: Context
    note: str = ""
    guess: Guess | None = None


def open_drafter(
    name: str, model: Model, target: Model, n_ctx: int, *, is_own: bool, sequences: int = 1
) -> DrafterModel:
    """Open a context of at most n_ctx tokens on a model.

    is_own: it was made from the target or for it. sequences: as many contexts' cells it gets, if
    there is memory, where it can draft for several replies.

    Raises:
        DraftUnavailableError: it cannot be rolled back, or cannot represent the target's text.
        ModelError: there is not enough memory for its context.
    """
    if model.info.rollback is Rollback.NONE:
        raise DraftUnavailableError(f"{name} cannot draft", f"it {model.info.rollback_refusal}")
    try:
        if not is_own:
            require_same_vocabulary(target.tokenizer, model.tokenizer, name)
    except DraftUnavailableError as mismatch:
        return _across(name, model, target, n_ctx, mismatch)
    n_ctx = min(n_ctx, model.info.context_limit)
    try:
        context = model.open(n_ctx, sequences=sequences)
    except OutOfMemoryError:
        context = model.open(n_ctx)
    drafter = drafter_of_head(
        name,
        context,
        n_vocab=target.info.n_vocab,
        end_tokens=target.tokenizer.end_tokens,
        is_certain=bool(target.info.host),
    )
    return DrafterModel(drafter, context)


def trial_texts() -> list[str]:
    """A built-in prompt of each kind, to try a drafter on one after the other."""
    texts: dict[str, str] = {}
    for prompt in built_in_prompts():
        texts.setdefault(prompt.kind, prompt.text)
    return list(texts.values())[:_MOST_TRIALS]


def tried(
    opened: DrafterModel,
    target: Model,
    context: TargetContext,
    prompt: str,
    beside: Callable[[Context], Context] | None = None,
) -> Acceptance:
    """Acceptance of a drafter in a short trial on a prompt; context: the target's.

    Of a target elsewhere nothing is found out, as its logits stay there. beside: opens a context of
    a head that drafts for another context of the target.

    Raises:
        ContextInUseError: a reply runs the context, and there is not enough memory for a second.
        ModelError: an engine failed.
    """
    text = target.tokenizer.encode(prompt, special=False)
    is_elsewhere = bool(target.info.host)
    if (
        is_elsewhere
        or not text
        or len(text) + MOST_SAID > min(context.facts.n_ctx, opened.context.n_ctx)
    ):
        return Acceptance()
    n_vocab = target.info.n_vocab
    with context.for_measuring(len(text) + MOST_SAID) as own:
        if beside is not None:
            with closing(beside(own)) as drafting:
                return trial(own, guess_of(drafting, n_vocab), text, n_vocab)
        found = trial(own, opened.guess or guess_of(opened.context, n_vocab), text, n_vocab)
    opened.context.truncate(0)
    return found


def _across(
    name: str, model: Model, target: Model, n_ctx: int, mismatch: DraftUnavailableError
) -> DrafterModel:
    translation = VocabularyTranslation.of(target.tokenizer, model.tokenizer)
    if translation is None:
        raise mismatch
    ours, theirs, shared = translation.ours, translation.theirs, translation.shared
    tokenizer, speller = target.tokenizer, translation.speller
    target_bos, bos = tokenizer.bos, model.tokenizer.bos
    control = same_control(tokenizer, ours, model.tokenizer, theirs)
    if target_bos is not None and bos is not None and control.get(target_bos) == [bos]:
        del control[target_bos]  # the retokenizer puts it before every text
    prefix = () if bos is None else (bos,)
    retokenizer = Retokenizer(ours, translation.their_speller, control, prefix)
    context = model.open(min(n_ctx, model.info.context_limit))
    follower = Follower(context, retokenizer)
    if translation.in_text >= _ENOUGH_SHARED:
        drafter = AcrossVocabularies(
            name, follower, shared, theirs, speller, end_tokens=tokenizer.end_tokens
        )
        way = "across vocabularies"
    else:
        drafter = TextLevel(name, follower, shared, theirs, speller)
        way = "across vocabularies, as text"
    return DrafterModel(
        drafter, context, f"{name} drafts {way}: {translation.words}", drafter.guess
    )
