"""Facts of a model from its files: sizes, memory, identity, vocabulary."""
