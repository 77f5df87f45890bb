"""What a block keeps of a line: `python -m scripts.measure_verification`.

Judged token after token, less is kept.

Target: the bundled model; drafter: its own Q4_0 copy. Both rules get the same drafts, and what
each keeps of one is its exact mean over the rule's own numbers, from the same rows.
"""

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np

from backends.base import Context
from decoding.draft import SampledLine
from decoding.drafters.draft_model import DraftModel
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings
from decoding.verification.rules import acceptance, next_share, scaled_residual, verify_block
from scripts.measure_acceptance import demo_pair
from scripts.prompts import tokenized

_LENGTHS = (3, 5, 7)


def judged(
    context: Context,
    drafter: DraftModel,
    prompt: Sequence[int],
    sampler: Sampler,
    end_tokens: frozenset[int],
    steps: int,
) -> Iterator[tuple[list[Distribution], SampledLine]]:
    """p_target after each head of the longest draft, and the draft, in each step of a reply."""
    history = list(prompt)
    reuse(context, history[:-1])
    for _ in prefill(context, history[:-1]):
        pass
    drafter.begin(history, sampler)
    for _ in range(steps):
        line = drafter.propose(history, max(_LENGTHS)).form
        assert isinstance(line, SampledLine)
        logits = context.forward([history[-1], *line.tokens], 1 + len(line.tokens))
        laws = [sampler.distribution(row, ()) for row in logits]
        yield laws, line
        verdict = verify_block(laws, line, sampler.verification)
        history += [*line.tokens[: verdict.accepted], verdict.next_token]
        context.truncate(len(history) - 1)
        if end_tokens & set(history[len(prompt) :]):
            return


def kept(laws: Sequence[Distribution], line: SampledLine, length: int) -> tuple[float, float]:
    """Tokens expected of the first length ones: token after token, and as a block."""
    of_draft = line.distributions
    count = min(length, len(line.tokens))
    reached, token_level = 1.0, 0.0
    share = 1.0
    failing: list[float] = []
    for place, (token, p_target, q_draft) in enumerate(
        zip(line.tokens[:count], laws, of_draft, strict=False), start=1
    ):
        p_of_token, q_of_token = p_target.of(token), q_draft.of(token)
        reached *= min(1.0, p_of_token / q_of_token)
        token_level += reached
        share = next_share(share, p_of_token, q_of_token)
        chance = share
        if place < count:
            chance = acceptance(scaled_residual(laws[place], of_draft[place], share)[1], share)
        failing.append(1.0 - chance)
    block = sum(1.0 - math.prod(failing[place:]) for place in range(count))
    return token_level, block


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--steps", type=int, default=24, help="drafts of each prompt")
    arguments = parser.parse_args()
    target, copy = demo_pair()
    context, draft_context = target.open(1024), copy.open(1024)
    found: dict[int, list[tuple[float, float]]] = {length: [] for length in _LENGTHS}
    for seed, (_, prompt) in enumerate(tokenized(target)):
        settings = SamplingSettings(
            arguments.temperature, top_k=arguments.top_k, top_p=1.0, min_p=0.0, seed=seed
        )
        drafter = DraftModel("self", draft_context, n_vocab=target.info.n_vocab)
        for laws, line in judged(
            context,
            drafter,
            prompt,
            Sampler(settings),
            target.tokenizer.end_tokens,
            arguments.steps,
        ):
            for length, values in found.items():
                values.append(kept(laws, line, length))
    print(f"temperature {arguments.temperature}, top-k {arguments.top_k}, tokens kept of a draft")
    print("drafted  drafts  token after token      as a block     gain")
    for length, values in found.items():
        token_level, block = np.array(values).T
        error = (block - token_level).std(ddof=1) / math.sqrt(len(values)) / token_level.mean()
        print(
            f"{length:7}  {len(values):6}  {_mean(token_level):>17}  {_mean(block):>14}"
            f"  {block.mean() / token_level.mean() - 1:6.1%} ± {error:.1%}"
        )
    copy.close()
    target.close()


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / math.sqrt(len(values)):.3f}"


if __name__ == "__main__":
    main()
