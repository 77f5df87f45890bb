"""OpenAI's dialects of chat and of completions."""
