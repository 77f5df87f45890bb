"""The conversation: its messages, the answer as it grows, and what stands around them."""
