"""Models of llama.cpp that keep a running state: what they can forget, and copies to go back to."""
