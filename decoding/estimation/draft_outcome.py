"""Learning a drafter's acceptance from what became of its draft."""

from decoding.draft import Draft
from decoding.estimation.acceptance_estimates import AcceptanceEstimates
from decoding.events import Step


def learn_line(
    estimates: AcceptanceEstimates, draft: Draft, step: Step, *, sent: bool, is_costly: bool
) -> None:
    """Judge the tokens of a line up to the first that was rejected.

    A certain token is judged by what the model said, sent or not; one that was drawn only if it was
    sent. is_costly: whether positions count, as for a drafter that is asked token by token.
    """
    for position, token in enumerate(draft.tokens):
        is_drawn = draft.is_sampled and position < draft.body
        if not is_drawn:
            if position == len(step.tokens):
                return
            accepted = token == step.tokens[position]
        elif not sent or (position == step.accepted == len(step.tokens)):
            return
        else:
            accepted = position < step.accepted
        if is_costly and position < draft.body:
            estimates.add_position(position, accepted=accepted)
        estimates.add_token(draft.evidence[position], draft.confidence[position], accepted=accepted)
        estimates.add_judged(accepted=accepted)
        if not accepted:
            return


def learn_tree(estimates: AcceptanceEstimates, step: Step) -> None:
    """Judge the positions of a tree that was sent, down to the first without an accepted node."""
    if not step.drafted:  # window tokens alone
        estimates.add_silence()
        return
    for position in range(min(len(step.tokens), step.accepted + 1, max(step.longest, 1))):
        accepted = position < step.accepted
        estimates.add_position(position, accepted=accepted)
        estimates.add_judged(accepted=accepted)
