"""What the screen costs: how quick the app is, and its painting."""
