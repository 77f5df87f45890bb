"""Chooses the drafters that pay here, from what is known before they are run."""
