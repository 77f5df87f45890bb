"""The chat app for terminals, on Textual."""
