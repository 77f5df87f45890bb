"""A drafter on a loaded model: of the target's own vocabulary, or across vocabularies."""

from dataclasses import dataclass

from app.prompts import built_in_prompts
from app.target_context import TargetContext
from app.translation import Translation
from backends.base import Context, DraftUnavailableError, Model, Rollback
from decoding.acceptance import Acceptance
from decoding.draft import Drafter
from decoding.drafters.across_vocabularies import AcrossVocabularies
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.follower import Follower
from decoding.drafters.text_level import TextLevel
from decoding.retokenizer import Retokenizer
from decoding.shared_vocabulary import same_control
from decoding.trial import MOST_SAID, Guess, trial, trial_across
from models.metadata.vocabulary_match import require_same_vocabulary

_ENOUGH_SHARED = 0.5
"""Of the tokens of ordinary text; with fewer shared, whole words are taken as text."""


@dataclass(frozen=True, slots=True)
class DrafterModel:
    """A drafter with its context. note: in words, what is special about it.

    guess: how it is tried before it ever drafted, where its tokens are not the target's.
    """

    drafter: Drafter
    context: Context
    note: str = ""
    guess: Guess | None = None


def open_drafter(
    name: str, model: Model, target: Model, n_ctx: int, *, is_own: bool
) -> DrafterModel:
    """Open a context of at most n_ctx tokens on a drafter; is_own: it was made from the target.

    Raises:
        DraftUnavailableError: it cannot be rolled back, or can read nothing of the target's text.
        ModelError: there is no memory for its context.
    """
    if model.info.rollback is not Rollback.ANY:
        raise DraftUnavailableError(f"{name} cannot draft", f"it {model.info.rollback_refusal}")
    try:
        if not is_own:
            require_same_vocabulary(target.tokenizer, model.tokenizer, name)
    except DraftUnavailableError as mismatch:
        return _across(name, model, target, n_ctx, mismatch)
    context = model.open(min(n_ctx, model.info.context_limit))
    drafter = DraftModel(
        name,
        context,
        n_vocab=target.info.n_vocab,
        end_tokens=target.tokenizer.end_tokens,
    )
    return DrafterModel(drafter, context)


def tried(opened: DrafterModel, target: Model, context: TargetContext) -> Acceptance:
    """What to expect of a drafter that nothing is remembered of; context: the target's.

    Raises:
        ContextInUseError: a reply runs the target's context, and there is no memory for another.
        ModelError: an engine failed.
    """
    text = target.tokenizer.encode(built_in_prompts()[0].text, special=False)
    if not text or len(text) + MOST_SAID > min(context.n_ctx, opened.context.n_ctx):
        return Acceptance()
    with context.for_measuring(len(text) + MOST_SAID) as own:
        if opened.guess is not None:
            return trial_across(own, opened.guess, text, target.info.n_vocab)
        return trial(own, opened.context, text, target.info.n_vocab)


def _across(
    name: str, model: Model, target: Model, n_ctx: int, mismatch: DraftUnavailableError
) -> DrafterModel:
    found = Translation.of(target.tokenizer, model.tokenizer)
    if found is None:
        raise mismatch
    ours, theirs, shared = found.ours, found.theirs, found.shared
    first, bos = target.tokenizer.bos, model.tokenizer.bos
    control = same_control(target.tokenizer, ours, model.tokenizer, theirs)
    if first is not None and bos is not None and control.get(first) == [bos]:
        del control[first]  # it leads every text already
    retokenizer = Retokenizer(ours, found.their_speller, control, () if bos is None else (bos,))
    context = model.open(min(n_ctx, model.info.context_limit))
    follower = Follower(context, retokenizer)
    if found.in_text >= _ENOUGH_SHARED:
        drafter = AcrossVocabularies(
            name, follower, shared, theirs, found.speller, end_tokens=target.tokenizer.end_tokens
        )
        way = "across vocabularies"
    else:
        drafter = TextLevel(name, follower, shared, theirs, ours, found.speller)
        way = "across vocabularies, as text"
    return DrafterModel(drafter, context, f"{name} drafts {way}: {found.words}", drafter.guess)
