"""Drafters that exist for one reply only, under the session's controller as long as it lasts."""

from collections.abc import Iterable, Iterator

from app.chat.conversation import ReplyOptions
from app.drafting.document_drafts import DocumentDrafts
from app.learned.acceptance_memory import AcceptanceMemory
from backends.base.model import Tokenizer
from backends.chat.chat_template import Prompt
from decoding.draft import MOST_DRAFTED, Drafter
from decoding.drafters.forced_tokens import ForcedTokens
from decoding.drafters.predicted_text import PredictedText
from decoding.drafters.retrieval.retrieval import Retrieval
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import DrafterStatus, drafter_status

_CHARACTERS_PER_TOKEN = 8
"""A context's worth of text, beyond which a predicted text is cut: tokens of text and code have 2
to 5 characters."""


def drafters_of(
    options: ReplyOptions,
    tokenizer: Tokenizer,
    prompt: Prompt,
    n_ctx: int,
    documents: DocumentDrafts | None = None,
) -> Iterator[Drafter]:
    """The drafters of one reply alone. Those that come first are preferred where drafts are equal.

    n_ctx: size of the context. documents: what the files of its chat say; None without any.
    """
    if options.grammar is not None:
        yield ForcedTokens()
    if predicted := _tokens(options.prediction, tokenizer, n_ctx):
        yield PredictedText(predicted, len(prompt.tokens) - prompt.begun)
    if documents is not None:
        yield Retrieval(documents, name="documents", max_draft=MOST_DRAFTED)


def _tokens(text: str, tokenizer: Tokenizer, n_ctx: int) -> list[int]:
    """Tokens of a predicted text; what cannot be encoded is replaced, and never matches."""
    if not text:
        return []
    usable = text[: n_ctx * _CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode("utf-8")
    return tokenizer.encode(usable, special=False)[:n_ctx]


class ReplyDrafters:
    """Free drafters that know something of one reply, such as its predicted text.

    They take part in the controller's decisions like any others, at the same costs and within the
    same risk budget. Their acceptance is remembered under their names.
    """

    def __init__(self, drafters: Iterable[Drafter] = ()) -> None:
        self._drafters = tuple(drafters)
        self._members: tuple[ManagedDrafter, ...] = ()
        self._controller: Controller | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(drafter.name for drafter in self._drafters)

    def join(
        self, controller: Controller | None, memory: AcceptanceMemory | None
    ) -> Controller | None:
        """Take part under the controller of the next step, which is returned.

        It may be another than at the last step, after the session's drafters were changed; with
        none, nothing drafts. memory: of acceptance, of that controller's drafters.
        """
        if self._drafters and controller is not self._controller:
            self._leave()
            self._controller = controller
            if controller is not None:
                self._members = self._members or tuple(
                    ManagedDrafter(drafter, memory.recall(drafter.name) if memory else None)
                    for drafter in self._drafters
                )
                controller.add(self._members)
        return controller

    def end(self, memory: AcceptanceMemory | None) -> tuple[DrafterStatus, ...]:
        """Leave the controller, as the reply has ended; returns the last state of each drafter.

        memory: gets their acceptance; whoever owns it saves it.
        """
        if self._controller is None:
            return ()
        statuses = tuple(drafter_status(one, self._controller.costs) for one in self._members)
        self._leave()
        if memory is not None:
            for managed in self._members:
                facts = {"name": managed.name}
                memory.remember(managed.name, managed.estimates.acceptance, facts)
        return statuses

    def _leave(self) -> None:
        if self._controller is not None:
            self._controller.remove(self._members)
            self._controller = None
