"""A server elsewhere that answers: its address, its dialect and what it tells of drafting."""
