"""How a speed compares with plain decoding."""
