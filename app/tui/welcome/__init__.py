"""What an empty chat shows: the last chats, and the first run."""
