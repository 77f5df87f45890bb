"""Retrieval: drafts from an on-disk index of earlier chats."""
