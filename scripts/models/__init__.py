"""Scripts that make small or padded models."""
