"""The dialects in which programs ask, a file each."""
