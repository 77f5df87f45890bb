"""From a model's name to loaded weights: selection, download, memory, safety."""
