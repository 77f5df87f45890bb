"""Rules that judge drafts: which drafted tokens stand, and the token that follows them."""
