"""Makes every picture of the documentation, from the running app."""
