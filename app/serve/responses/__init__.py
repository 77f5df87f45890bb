"""OpenAI's dialect of responses, without state."""
