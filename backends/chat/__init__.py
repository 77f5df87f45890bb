"""Prompts from conversations, by the chat template a model ships."""
