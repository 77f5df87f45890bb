"""Fuzzing: damages files of every kind that specchat reads, and checks its readers."""
