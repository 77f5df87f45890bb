"""How many tokens of a pass llama.cpp can take back of a running state."""


def kept_snapshots(n_tokens: int, depth: int) -> int:
    """Tokens that may be taken back after a pass over n_tokens, in a context of this depth.

    A pass writes the state after each of its last depth + 1 tokens, as far as it has so many. The
    engine accepts a rollback of depth tokens in any case, and goes on from the state of an earlier
    pass if this one was too short.
    """
    return min(depth, n_tokens - 1)
