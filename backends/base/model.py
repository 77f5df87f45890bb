"""Contract of a backend: a loaded model with its tokenizer, and contexts that run it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from backends.base.errors import ModelError, UsageError
from backends.base.images import NO_PROJECTOR, Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]
    """Rows of raw scores, shape (positions, n_vocab)."""
    CacheState = NDArray[np.uint8]
    """A copy of a context's cache in the engine's own format, shape (bytes,)."""
else:  # who needs no more than this package's errors does not wait for numpy
    Logits = CacheState = object


class CacheType(StrEnum):
    """Type of keys and values, by llama.cpp's name for it.

    A choice of the model's own arithmetic: logits differ between types, and drafting is lossless
    in each. Keys and values have the same one, as builds for CUDA and Metal demand.
    """

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @property
    def number_bytes(self) -> float:
        """Bytes of a number; quantized types add a half float to each block of 32."""
        return _NUMBER_BYTES[self]


_NUMBER_BYTES = {CacheType.F16: 2.0, CacheType.Q8_0: 34 / 32, CacheType.Q4_0: 18 / 32}


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """Control tokens that ask a model to fill a gap: before what precedes it, what follows, it."""

    prefix: int
    suffix: int
    middle: int


class Tokenizer(Protocol):
    """Text to token ids and back, exactly as the model was trained."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def bos(self) -> int | None:
        """Token put before every prompt, None if the model expects none."""
        ...

    @property
    def bos_text(self) -> str:
        """What templates call bos_token, whether it stands before prompts or not; "" without."""
        ...

    @property
    def eos(self) -> int | None: ...

    @property
    def end_tokens(self) -> frozenset[int]: ...

    @property
    def infill(self) -> InfillTokens | None:
        """Tokens of a gap to fill, None if the model was not trained to fill one."""
        ...

    @property
    def special_texts(self) -> tuple[str, ...]:
        """Texts of control tokens and of user-defined ones that may be marks: no user's text."""
        ...

    @property
    def chat_template(self) -> str | None: ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of text; with special, special texts become their tokens, else none does."""
        ...

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of a token in a reply, perhaps part of a character; b"" if it is control."""
        ...

    def entry(self, token: int) -> bytes:
        """Engine-independent identity of a token, the same in equal vocabularies.

        Its bytes in a text; for a SentencePiece byte token its name, such as b"<0x0A>"; for control
        and padding tokens their name.
        """
        ...

    def is_padding(self, token: int) -> bool:
        """Whether the token only pads the vocabulary and is never used."""
        ...

    def image_tokens(self, image: Image) -> list[int]:
        """Tokens that stand for an image in a prompt, for contexts of this very model.

        Raises:
            UsageError: the model sees no images, or this one is damaged.
        """
        ...


def distinct_share(share: float, n_tokens: int) -> float:
    """Expected share of the experts that at least one of n_tokens chooses: 1 - (1 - share)^n.

    share: of the experts that one token uses, k of E. One token leaves an expert out with
    probability 1 - k/E, and independent tokens all do with its n-th power. An upper bound: some
    experts are chosen more often than others, and 1 - (1 - p)^n is concave in p; neighbouring
    tokens agree in part. Only used until passes were measured, and for the lengths between
    measured ones.
    """
    return 1.0 - (1.0 - share) ** n_tokens


def reads_of_one_token(share: float, n_tokens: int) -> float:
    """What a pass is expected to read of the experts, in what one token reads; from 1 to 1/share.

    share 0 is the limit in which no two tokens choose the same: n_tokens.
    """
    return distinct_share(share, n_tokens) / share if share else n_tokens


Listener = Callable[["NDArray[np.int64]"], None]
"""Called after a pass with the likeliest token after each of its tokens, shape (tokens,)."""


@dataclass(frozen=True, slots=True)
class Warping:
    """Parameters that warp a distribution: top-k, top-p, min-p, and temperature last.

    temperature 0 keeps only the most likely token; top_k 0 means every token.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float


class DeviceRow(Protocol):
    """A q_draft that stays on the device until it is verified there."""

    def probabilities(self) -> "NDArray[np.float64]":
        """Copy of the probabilities on the host, shape (n_vocab,), adding up to 1."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn in sequence, each with its probability and its q_draft."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    rows: tuple[DeviceRow, ...]


class DeviceSampling(Protocol):
    """Draws and verifies tokens of one context on its device.

    uniforms: numbers in (0, 1], float64. Both methods raise ModelError if the engine failed (the
    context is then as forward leaves it) or gave no finite scores.
    """

    @property
    def keeps_rows(self) -> bool:
        """Whether logits never leave the device: forward gives none, and draft is not there."""
        ...

    def draft(
        self, tokens: Sequence[int], warping: Warping, uniforms: "NDArray[np.float64]", n_vocab: int
    ) -> Drawn:
        """Append tokens, draw one token for each uniform, and append all drawn but the last.

        Only the first n_vocab entries of a row are drawn from.
        """
        ...

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: "NDArray[np.float64]",
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        """Append tokens and drafted, and verify drafted; the model's distribution is preserved.

        rows: the q_draft of each drafted token, from a context of the same backend; None for a
        point mass on each. uniforms: one more than drafted. Returns the number of accepted tokens
        and the model's own token after them.

        A line with rows is verified as a block: it uses a uniform for each drafted token, in order,
        accepted or not, and the last for the token drawn. A point mass is accepted if the model
        draws its token: the uniforms up to the first mismatch are used.

        listener: called for the drafted tokens and the last one before them.
        """
        ...


class Rollback(StrEnum):
    """How far a model's context can forget its last tokens."""

    ANY = "any"
    BOUNDED = "bounded"
    """Only so many tokens of its last pass: its running state is kept once for each of them."""
    NONE = "none"


NO_COPIES = "keeps a running state, and was opened without copies of it to go back to"
"""Why nothing drafts in a context that was opened not to, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    path: Path
    name: str
    architecture: str
    quantization: str
    parameters: int
    weight_bytes: int
    bytes_read_per_token: int
    """Weights read for one plain token: active experts only, no input embedding table."""
    n_vocab: int
    n_layers: int
    context_limit: int
    rollback: Rollback
    backend: str
    engine: str
    """The build that runs it; speed differs between builds."""
    device: str
    threads: int
    rollback_refusal: str = "keeps a running state, which cannot forget rejected tokens"
    """Why rollback is NONE, as the rest of a sentence after the model's name."""
    variant: str = ""
    """How it was derived in memory from the weights at path; "" for those weights themselves."""
    active_experts: int = 0
    """Experts used per token, 0 in a model without experts."""
    expert_share: float = 0.0
    """Share of a layer's routed experts that one token uses; 0 without experts, or if it is all."""
    locked_bytes: int = 0
    """Weights locked in memory because the others stream from disk; 0 if nothing is locked."""
    streamed_bytes_per_token: int = 0
    """Bytes read from disk for one plain token; 0 for a model that is in memory."""
    gpu_layers: int | None = None
    """Layers on GPUs, where that is not all of them or none: as the engine counts them."""
    lock_refusal: str = ""
    """Why less is locked than was planned, as the rest of a sentence; "" if nothing is missing."""
    cache_type: CacheType | None = None
    """Type of the KV cache's numbers; None where the engine has the model's own."""
    image_refusal: str = NO_PROJECTOR
    """Why it sees no images, as the rest of a sentence; "" if it does."""
    host: str = ""
    """The machine that runs it, of which only the vocabulary is here; "" for this one."""

    @property
    def uses_processor(self) -> bool:
        """Whether it computes on this machine's processor, wholly or in part."""
        return not self.host and (self.device.startswith("CPU") or self.gpu_layers is not None)


def no_images(refusal: str) -> UsageError:
    """Error for an image that is given to a model that sees none, with why."""
    remedy = (
        "Remove the image, or choose a model whose entry in `specchat models list` says images."
    )
    return UsageError("this model sees no images", refusal, remedy)


def check_context(name: str, n_ctx: int, limit: int) -> None:
    """Refuse a context size beyond limit, the training context of the model of this name.

    Raises:
        UsageError: n_ctx is out of range.
    """
    if not 0 < n_ctx <= limit:
        raise UsageError(
            f"a context of {n_ctx:,} tokens is out of range",
            f"{name} was trained for at most {limit:,}",
            f"Use --ctx {limit} or less.",
        )


class Held(Protocol):
    """Tokens of a context, and the most that it can hold."""

    n_ctx: int
    tokens: list[int]


def check_room(context: Held, count: int) -> None:
    """Refuse tokens that do not fit after those that a context holds.

    Raises:
        ModelError: there are more of them than places left.
    """
    held = len(context.tokens)
    if held + count > context.n_ctx:
        raise ModelError(
            f"{count} tokens do not fit after {held:,}", f"the context holds {context.n_ctx:,}"
        )


def check_truncation(length: int, held: int) -> None:
    """Refuse a length outside 0 to held, the tokens of a context.

    Engines accept any length silently, and later output is then wrong.

    Raises:
        ModelError: length is not from 0 to held.
    """
    if not 0 <= length <= held:
        raise ModelError(
            f"a context cannot be cut to {length:,} tokens", f"it holds {held:,} of them"
        )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Vocabulary of a model, available without its weights."""

    tokenizer: Tokenizer
    rollback: Rollback


class ContextFacts(Protocol):
    """Facts of a context, known without running it."""

    n_ctx: int
    """Most tokens it can hold."""
    n_chunk: int
    """Most tokens of one forward pass; prefill is split into chunks of this size."""
    max_logits: int
    """Most rows of logits one forward pass returns."""
    exact_batch: int
    """Tokens from which on all passes compute a token alike, to the bit.

    So do the shorter ones among themselves, in whole groups of 4 tokens. 0 where that depends
    on each length, or where no pass is as long.
    """
    stops_passes: bool
    """Whether forward ends a long pass early, with PassStoppedError (see stopping_passes).

    Where there is a running state, only right after a checkpoint: nothing is lost then.
    """
    draft_refusal: str
    """Why max_rollback is 0, as the rest of a sentence after the model's name; "" else."""
    max_branches: int
    """Most leaves of a tree."""
    kv_bytes_per_token: int
    state_bytes: int
    """Bytes of its running state in all copies, which grow with no token; 0 for most models."""
    saved_state_bytes: int
    """Bytes of its running state in what save returns, which has no copies."""

    @property
    def tokens(self) -> Sequence[int]:
        """Tokens in the cache, oldest first. Not to be modified."""
        ...

    @property
    def length(self) -> int: ...

    @property
    def can_roll_back(self) -> bool:
        """Whether truncate accepts any length; otherwise only what rollback_to gives."""
        ...

    @property
    def max_rollback(self) -> int:
        """Most tokens that truncate can take back of a pass just run, but for its first one.

        No draft may be longer. 0 if none can be taken back; n_ctx if any can.
        """
        ...

    def rollback_to(self, length: int) -> int:
        """The longest length, up to this one and the present one, that truncate now accepts."""
        ...

    @property
    def can_verify_tree(self) -> bool:
        """Whether forward_tree works."""
        ...

    @property
    def tree_refusal(self) -> str:
        """Why it does not, as the rest of a sentence after the model's name; "" if it does."""
        ...


class Context(ContextFacts, Protocol):
    """One token sequence and its KV cache. Not to be used by two callers at once."""

    @property
    def device_sampling(self) -> DeviceSampling | None: ...

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        """Append tokens and return the logits after the last n_logits, shape (n_logits, n_vocab).

        The rows are a view that the next call overwrites.

        Raises:
            ModelError: the engine failed; the context is unchanged.
            PassStoppedError: it was stopped (see stopping_passes); the context is unchanged.
        """
        ...

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Run a tree of tokens and return the logits after each node, shape (nodes, n_vocab).

        parents: index of each node's parent, an earlier node; -1 for the end of the context. At
        most max_logits nodes with max_branches leaves, within the room left. The context holds none
        of them until commit keeps some; any call but commit and grow_tree drops them all. The rows
        are a view that the next call overwrites.

        Raises:
            ModelError: the tree exceeds a limit or the engine failed; the context is unchanged.
        """
        ...

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        """Add nodes to the uncommitted tree; logits after the new nodes, (new, n_vocab).

        Earlier nodes are not run again, and their rows are no longer valid. parents: index of each
        new node's parent among all nodes of the tree, earlier calls first; -1 for the end of the
        context. The limits of forward_tree apply: max_logits to the new nodes, max_branches and the
        room left to the whole tree.

        Raises:
            ModelError: the tree exceeds a limit or the engine failed; the tree is dropped.
        """
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Append a path of the uncommitted tree to the context, and drop the other nodes.

        path: indices from a child of the context's end downwards, without a gap; empty for none.
        """
        ...

    def truncate(self, length: int) -> None:
        """Keep the first length tokens.

        Raises:
            ModelError: the context is shorter, or length is negative.
            RollbackRefusedError: this length is not reachable.
        """
        ...

    def checkpoint(self, *, is_brief: bool = False) -> None:
        """Make the present length reachable for longer, as far as there is memory to.

        It stays so until the context is truncated to less, or newer checkpoints take its place.
        Nothing is done where any length is reachable.

        is_brief: only until the next brief one, and in the place of no other.
        """
        ...

    def save(self) -> CacheState:
        """Copy the cache, for restore.

        Raises:
            ModelError: the engine failed, or there is too little memory for the copy.
        """
        ...

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        """Replace the cache with a saved state, which holds tokens.

        state must be byte for byte what save returned for a context of the same size, model, build
        and device: engines may abort the process over anything else.

        Raises:
            ModelError: the engine refused it; the context is empty.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class SharedContext(Context, Protocol):
    """A context whose cells several sequences share; itself the first of them.

    Each holds up to n_ctx tokens as far as there are free cells: forward and restore raise
    ModelError where there are none. Rows of what others lie between round otherwise.
    """

    @property
    def max_sequences(self) -> int:
        """Most sequences at once, this one included; 1 where fork does not work."""
        ...

    @property
    def sequences_refusal(self) -> str:
        """Why it does not, as the rest of a sentence after the model's name; "" if it does."""
        ...

    @property
    def free_cells(self) -> int:
        """Cells that no sequence holds; those that several share count once."""
        ...

    def shared_after(self, length: int) -> int:
        """Tokens after the first length whose cells others have too, which no cut frees."""
        ...

    def fork(self, source: Context, length: int) -> Context:
        """Open a sequence that begins with the first length tokens of source, and shares them.

        source: this context or one of its sequences. Trees are not verified in a fork, and each
        takes a branch from those of this context. It closes with this context, if not before.
        An uncommitted tree stays so, unless it has this branch.

        Raises:
            ModelError: there are max_sequences already, or an image is among the tokens.
        """
        ...

    def forward_together(
        self, passes: Sequence[tuple[Context, Sequence[int]]], n_logits: Sequence[int] = ()
    ) -> list[Logits]:
        """Append tokens to several sequences of these cells in one pass, n_chunk in all.

        n_logits: of each, how many of its last tokens leave logits, max_logits in all; every token
        if none are given. For each, these rows, shape (n_logits, n_vocab): views of one buffer that
        the next call of any sequence overwrites.

        Raises:
            ModelError, PassStoppedError: as forward does; all are unchanged.
        """
        ...


class Model(Protocol):
    """Loaded weights."""

    @property
    def info(self) -> ModelInfo: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def shortage(self) -> str:
        """What the model lost to other programs since it was loaded, in words; "" if nothing."""
        ...

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> Context:
        """Open an empty context of n_ctx tokens.

        sequences: those for which a SharedContext has as many cells each; others have no use.

        drafts: whether drafts are to be verified in it, or drawn. If not, a context of a model
        whose rollback is BOUNDED keeps no copies of its running state, and its max_rollback is 0.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
        """
        ...

    def close(self) -> None:
        """Free the weights and all open contexts."""
        ...


class Head(Model, Protocol):
    """Layers that draft for one model, from what the passes of its context leave.

    It is loaded for one context of the model, beside which open opens, and is closed before it.
    """

    def open_beside(self, context: Context) -> Context:
        """Open an empty context that drafts for another context of the model, and closes with it.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
            DraftUnavailableError: it cannot read what the model's layers are given.
            ModelError: code of the model's architecture failed.
        """
        ...


Block = Callable[[Sequence[int]], "Logits | None"]
"""The logits after the context and the tokens of a draft so far, shape (n_vocab,).

None after tokens that the pass did not reckon with, and where the block ends. A row is a function
of the text before it, so that it is the q_draft of a token sampled from it. Rows are views that the
next call of the context overwrites.
"""


@runtime_checkable
class BlockContext(Context, Protocol):
    @property
    def longest(self) -> int:
        """Most tokens of a block."""
        ...

    def draft(self, count: int) -> Block:
        """Run one pass over the last token and count tokens to follow it, which are not kept.

        Raises:
            ModelError: the engine failed; the context is unchanged.
        """
        ...


_is_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("is_stopped", default=None)


@contextmanager
def stopping_passes(is_stopped: Callable[[], bool]) -> Generator[None]:
    """Let passes within the block end early, with PassStoppedError, once is_stopped holds.

    Contexts whose passes it can stop say so (stops_passes). It may be asked on another thread.
    """
    token = _is_stopped.set(is_stopped)
    try:
        yield
    finally:
        _is_stopped.reset(token)


def pass_is_stopped() -> bool:
    """Whether the pass that runs in this thread shall end."""
    is_stopped = _is_stopped.get()
    return is_stopped is not None and is_stopped()


def stop_of_passes() -> Callable[[], bool] | None:
    """What tells whether passes that run in this thread shall end; None outside of such a block."""
    return _is_stopped.get()
