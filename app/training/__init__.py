"""Training of drafters on this machine: prompts, answers, a run's stages, and their results."""
