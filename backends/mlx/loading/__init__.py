"""Reading and checking MLX folders and GGUF files for MLX."""
