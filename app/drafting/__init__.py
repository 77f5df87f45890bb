"""Building the drafters that a session asks for."""
