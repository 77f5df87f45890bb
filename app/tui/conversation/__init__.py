"""The conversation: its data, its messages and the answer in progress."""
