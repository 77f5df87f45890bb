"""Models read from disk: what to expect of one, and whether the user agreed to it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.loading.placement import MemoryPlan, can_stream, plan, stream_plan
from app.loading.select import expected_backend
from app.loading.session_options import STREAM_OFF, STREAM_ON, SessionOptions
from app.paths import Paths
from backends.base import OutOfMemoryError
from backends.engines.backend_selection import LLAMACPP
from models.bounded_files import NameList
from models.byte_sizes import gigabytes
from models.metadata.memory_bill import ModelFacts
from models.reference import HubReference, Reference

if TYPE_CHECKING:
    from app.loading.pass_time import Split
    from app.loading.placement import GpuSplit
    from backends.streaming.mapped_file import DiskSpeed

_SLOW = 0.1
"""Tokens a second below which seconds a token say more."""


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of a model that are held in memory, and those that a token reads from disk."""

    held: int
    streamed: int

    @property
    def words(self) -> str:
        held, read = gigabytes(self.held), gigabytes(self.streamed)
        return f"{held} of its weights are held in memory, {read} are read from disk for each token"


@dataclass(frozen=True, slots=True)
class Outlook:
    """Shares of a model in memory and on disk, and the speed that follows.

    disk, rate: None if the disk's or the memory's speed cannot be measured; rate: tokens a second
    of plain decoding. drafted: the drafter with the most tokens a second, by acceptance measured
    with this model; None if none gains or nothing was measured. split: of a model that is partly on
    a GPU; held and streamed are then shares of what is not.
    """

    share: Share
    disk: "DiskSpeed | None" = None
    rate: float | None = None
    drafted: "Split | None" = None
    draft_cost: str = ""
    """What drafts cost whose gain is unknown, in words."""
    split: "GpuSplit | None" = None

    @property
    def streams(self) -> bool:
        return self.split is None or self.share.streamed > 0

    @property
    def words(self) -> str:
        text = self._shares
        if self.rate is None:
            return f"{text}; how fast cannot be measured here"
        speed = f" at {self.disk.bytes_per_second / 1e9:.2g} GB/s" if self.disk else ""
        text = f"{text}{speed}: {streaming_rate(self.rate)}"
        if self.drafted is not None and self.drafted.drafter is not None:
            faster = streaming_rate(self.drafted.rate)
            return f"{text}, with {self.drafted.drafter.name} drafting {faster}"
        return f"{text}; {self.draft_cost}" if self.draft_cost else text

    @property
    def _shares(self) -> str:
        on_gpu = f"{self.split.words}; " if self.split else ""
        if not self.streams:
            return f"{on_gpu}{gigabytes(self.share.held)} of its weights stay with the processor"
        return f"{on_gpu}{self.share.words}"

    @property
    def question(self) -> str:
        """The outlook, and whether that is wanted."""
        return f"Read it from disk? {self.words}."


def streaming_rate(rate: float, *, is_narrow: bool = False) -> str:
    """An expected rate to two digits: "about 1.9 tok/s", or "about 26 s a token" if very slow."""
    begin = "~" if is_narrow else "about "
    if rate < _SLOW:
        return f"{begin}{float(f'{1 / rate:.2g}'):,.0f} s a token"
    return f"{begin}{float(f'{rate:.2g}'):g} tok/s"


class StreamOfferError(OutOfMemoryError):
    """A model that does not fit in memory, and could stream if the user agrees.

    model: its name as in --model. path: its first file. outlook: what to expect of it.
    """

    def __init__(self, refusal: OutOfMemoryError, model: str, path: Path, outlook: Outlook) -> None:
        super().__init__(
            refusal.what,
            refusal.why,
            f"With --stream on it is read from disk: {outlook.words}.\n{refusal.remedy}",
        )
        self.model = model
        self.path = path
        self.outlook = outlook


_unrecorded: set[tuple[Path, str]] = set()
"""What could not be recorded, as record and model, such as on a disk that is full: it holds until
this process ends."""


class AgreedModels:
    """Models that the user agreed to have read from disk, in a file; none if it cannot be read."""

    def __init__(self, file: Path) -> None:
        self.file, self._names = file, NameList(file, "models")

    def has(self, model: Path) -> bool:
        path = os.path.realpath(model)
        return path in self._names or (self.file, path) in _unrecorded

    def add(self, model: Path) -> None:
        """Record that the user agreed, or else remember it until this process ends."""
        path = os.path.realpath(model)
        self._names.add(path)
        if path not in self._names:
            _unrecorded.add((self.file, path))


def may_stream(
    reference: Reference | HubReference,
    facts: ModelFacts,
    options: SessionOptions,
    free: int | None,
) -> bool:
    """Whether a model that does not fit could stream, and that is not switched off.

    free: bytes of memory, None if unknown.
    """
    if free is None or options.stream == STREAM_OFF:
        return False
    is_llamacpp = expected_backend(reference, options.backend) == LLAMACPP
    return is_llamacpp and can_stream(facts, free)


def is_agreed(model: Path, options: SessionOptions, paths: Paths) -> bool:
    """Whether the user agreed to have a model read from disk, now or before."""
    return options.stream == STREAM_ON or AgreedModels(paths.agreed_models).has(model)


def plan_alone(
    reference: Reference,
    facts: ModelFacts,
    options: SessionOptions,
    paths: Paths,
    usual: int,
    free: int | None,
) -> MemoryPlan:
    """As plan; a model that does not fit streams, if that is possible and agreed to.

    Raises:
        OutOfMemoryError: it does not fit, and does not stream.
    """
    try:
        return plan(reference.name, facts, options.ctx, usual, free)
    except OutOfMemoryError as refusal:
        if free is None or options.gpu_layers or not may_stream(reference, facts, options, free):
            raise
        if not is_agreed(reference.path, options, paths):
            remedy = f"{refusal.remedy}\nWith --stream on it is read from disk."
            raise OutOfMemoryError(refusal.what, refusal.why, remedy) from refusal
        return stream_plan(reference.name, facts, options.ctx, usual, free)
