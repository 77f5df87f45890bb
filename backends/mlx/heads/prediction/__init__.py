"""Next-token layers (MTP) on MLX: their weights as they are published, and running them."""
