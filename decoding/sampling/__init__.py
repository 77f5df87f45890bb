"""Sampling settings, warping of logits, and the random numbers of a reply."""
