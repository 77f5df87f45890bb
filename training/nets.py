"""Heads by method."""

from training.arrays import Arrays
from training.heads.eagle3 import Eagle3
from training.heads.last_state import LastState
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import Source

OF_TAPS, OF_LAST_STATE = ("eagle3", "eagle1"), ("hydra", "medusa", "recurrent")


def open_net(
    source: Source, cache: SampleCache, settings: TrainSettings, arrays: Arrays
) -> Eagle3 | LastState:
    """The head of a method, which drafts what is common in the cache's answers."""
    return (Eagle3 if settings.method in OF_TAPS else LastState)(arrays, settings, source, cache)
