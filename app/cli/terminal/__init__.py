"""Standard input, output and error, signals, and how the process ends."""
