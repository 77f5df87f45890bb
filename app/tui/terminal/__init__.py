"""The terminal below Textual: input, output, clipboard and signals."""
