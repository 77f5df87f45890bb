"""How many of a layer's routed experts a pass over several tokens reads."""


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
