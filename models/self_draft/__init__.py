"""Self-drafters: recipes, and the files made from them."""
