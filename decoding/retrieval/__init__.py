"""An index on disk over texts said before: finds where the end of a text stood in them."""
