"""Models larger than memory: which weights are held in it, and how the rest comes from disk."""
