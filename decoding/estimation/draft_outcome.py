"""Learns a drafter's acceptance from the outcome of its draft."""

from decoding.draft import Draft
from decoding.estimation.acceptance_estimates import AcceptanceEstimates
from decoding.events import Step


def learn_line(
    estimates: AcceptanceEstimates, draft: Draft, step: Step, *, sent: bool, is_costly: bool
) -> None:
    """Learn from the tokens of a line, up to the first rejected one.

    A certain token is judged against the model's own, sent or not; a sampled one only if it was
    sent. is_costly: whether to count positions too, as for a drafter that drafts token by token.
    """
    for position, token in enumerate(draft.tokens):
        is_sampled = draft.is_sampled and position < draft.body
        if not is_sampled:
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
    """Learn from the levels of a tree that was sent, down to the first without an accepted node."""
    if not step.drafted:  # window tokens alone
        estimates.add_silence()
        return
    for position in range(min(len(step.tokens), step.accepted + 1, max(step.longest, 1))):
        accepted = position < step.accepted
        estimates.add_position(position, accepted=accepted)
        estimates.add_judged(accepted=accepted)
