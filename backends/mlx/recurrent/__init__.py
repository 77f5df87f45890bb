"""Models of MLX that keep a running state: what a pass changed, and ways back from it."""
