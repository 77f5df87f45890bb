"""What the registered actions do."""
