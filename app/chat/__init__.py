"""Conversations: their turns, attachments, unsent text and thinking."""
