"""Rules that decide which drafted tokens are accepted, and draw the token that follows them."""
