"""A drafter on a loaded model: of the target's own vocabulary, or across vocabularies."""

from dataclasses import dataclass

from app.prompts import built_in_prompts
from backends.base import Context, DraftUnavailableError, Model, Rollback
from decoding.draft import Drafter
from decoding.drafters.across_vocabularies import AcrossVocabularies
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.follower import Follower
from decoding.drafters.text_level import TextLevel
from decoding.pieces import Pieces
from decoding.retokenizer import Retokenizer
from decoding.shared_vocabulary import SharedVocabulary, same_control
from decoding.speller import Speller
from decoding.trial import Guess
from models.vocabulary import require_same_vocabulary

_ENOUGH_SHARED = 0.5
"""Of the tokens of ordinary text; with fewer shared, whole words are taken as text."""

_LEAST_READABLE = 0.9
"""Of ordinary text, what the drafter's vocabulary must be able to spell."""


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
        raise DraftUnavailableError(
            f"{name} cannot draft", "it keeps a running state, which cannot be rolled back"
        )
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


def _across(
    name: str, model: Model, target: Model, n_ctx: int, mismatch: DraftUnavailableError
) -> DrafterModel:
    ours, theirs = Pieces.of(target.tokenizer), Pieces.of(model.tokenizer)
    speller, their_speller = Speller(target.tokenizer, ours), Speller(model.tokenizer, theirs)
    text = " ".join(prompt.text for prompt in built_in_prompts()).encode()
    if len(theirs.joined(their_speller.spell(text))) < _LEAST_READABLE * len(text):
        raise mismatch
    shared = SharedVocabulary.of(target.tokenizer, ours, model.tokenizer, theirs)
    in_text = shared.share_of(speller.spell(text))
    first, bos = target.tokenizer.bos, model.tokenizer.bos
    control = same_control(target.tokenizer, ours, model.tokenizer, theirs)
    if first is not None and bos is not None and control.get(first) == [bos]:
        del control[first]  # it leads every text already
    retokenizer = Retokenizer(ours, their_speller, control, () if bos is None else (bos,))
    context = model.open(min(n_ctx, model.info.context_limit))
    follower = Follower(context, retokenizer)
    if in_text >= _ENOUGH_SHARED:
        drafter = AcrossVocabularies(
            name, follower, shared, theirs, speller, end_tokens=target.tokenizer.end_tokens
        )
        way = "across vocabularies"
    else:
        drafter = TextLevel(name, follower, shared, theirs, ours, speller)
        way = "across vocabularies, as text"
    note = f"{name} drafts {way}: {_percent(shared.share)} of its tokens are shared"
    note += f", {_percent(in_text)} in ordinary text"
    return DrafterModel(drafter, context, note, drafter.guess)


def _percent(share: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(100 * share)} %"
