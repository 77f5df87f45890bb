"""What a person touches: the command line, the chat session, settings."""
