"""Nets by method: opened on a cache, and what they will take."""

from itertools import islice
from math import prod

import numpy as np

from training.arrays import Arrays
from training.heads.eagle3 import Eagle3
from training.heads.head import Given
from training.heads.last_state import LastState
from training.samples import SampleCache
from training.settings import TrainSettings
from training.source import Source, layer_shapes
from training.teaching import Vocabulary, drafted_tokens, spreads

OF_TAPS, OF_LAST_STATE = ("eagle3", "eagle1"), ("hydra", "medusa", "recurrent")
_FOR_SPREADS = 64


def open_net(
    source: Source, cache: SampleCache, settings: TrainSettings, arrays: Arrays
) -> Eagle3 | LastState:
    """The head of a method, which drafts what is common in the cache's answers."""
    numbers = range(len(cache))
    counted = (cache.sample(number) for number in numbers)
    drafted = drafted_tokens(counted, settings.vocabulary, source.n_vocab)
    spread = spreads([cache.sample(number) for number in islice(numbers, _FOR_SPREADS)])
    vocabulary = Vocabulary.of(drafted, source.n_vocab)
    given = Given(arrays, source, settings, vocabulary, spread, cache.facts.taps)
    return Eagle3(given) if settings.method in OF_TAPS else LastState(given)


def n_parameters(source: Source, settings: TrainSettings, taps: int = 3) -> int:
    """Numbers that are trained."""
    width = source.width
    vocabulary = Vocabulary.of(np.arange(min(settings.vocabulary, source.n_vocab)), source.n_vocab)
    shapes = [prod(shape) for shape in layer_shapes(source.shape, 2).values()]
    feed_forward = 3 * width * source.shape.feed_forward
    heads = 1 if settings.method == "recurrent" else settings.depth
    read = {"medusa": heads, "recurrent": 3}.get(settings.method, heads * (heads + 3) // 2)
    of_output = settings.rank * (width + len(vocabulary.drafted))
    if settings.method in OF_TAPS:
        return sum(shapes) + (taps if settings.method == "eagle3" else 1) * width**2 + of_output
    return heads * feed_forward + read * width**2 + of_output


def peak_bytes(source: Source, settings: TrainSettings, taps: int = 3) -> int:
    """About what training takes: weights and moments, the target's rows, what a step remembers.

    A place of a step remembers its logits three times, and some 60 states: measured at 135M.
    """
    drafted = min(settings.vocabulary, source.n_vocab)
    place = 3 * drafted + 60 * source.width + 3 * source.shape.feed_forward
    weights = 6 * n_parameters(source, settings, taps) + (drafted + source.n_vocab) * source.width
    return 4 * (weights + settings.depth * settings.batch_tokens * place)
