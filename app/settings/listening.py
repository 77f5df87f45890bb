"""Where the server listens unless told otherwise."""

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377
"""Neither llama-server's 8080, nor Ollama's 11434, LM Studio's 1234 or vLLM's 8000."""

MOST_PORT = 65_535

KEY_VARIABLE = "SPECCHAT_API_KEY"
"""Variable in which clients find the server's key; it is none of our own."""
