"""Sampling and exact verification on the device."""
