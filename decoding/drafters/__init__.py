"""The drafters: prompt lookup, a drafter model, and chains of them."""
