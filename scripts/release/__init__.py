"""Scripts used for a release: pins, catalogue, screenshot."""
