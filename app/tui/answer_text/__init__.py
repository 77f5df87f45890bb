"""The text of an answer: Markdown that grows, coloured by who drafted it."""
