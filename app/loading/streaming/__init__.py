"""Planning for models larger than memory, whose weights are read from disk in every pass."""
