"""A drafted line judged on the device where its logits are."""

import numpy as np

from backends.base import DeviceSampling, Warping
from decoding.draft import Draft
from decoding.sampling import next_uniforms, skip_uniforms
from decoding.verification.token_level import Verdict


def verify_on_device(
    device: DeviceSampling,
    warping: Warping,
    last: int,
    draft: Draft,
    generator: np.random.Generator,
) -> Verdict:
    """The target's pass over the last token and a draft, judged by the same rule where it ran.

    The draft's distributions, where it has any, are on the same device. The generator gives the
    same numbers for the same purposes as where the host judges, so that a seed gives the same
    reply: all of them for a drawn line, those of the tokens emitted for point masses.
    """
    assert draft.distributions is None, "they are not on the device"
    uniforms = next_uniforms(generator, 1 + len(draft))
    accepted, next_token = device.verify(
        [last], draft.tokens, draft.rows, warping, uniforms, draft.listener
    )
    skip_uniforms(generator, len(uniforms) if draft.is_drawn else accepted + 1)
    return Verdict(accepted, next_token)
