"""Prompt lookup: drafts from the text of the conversation itself."""
