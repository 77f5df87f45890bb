"""What files say: text of any kind of file, folders, and the passages of what is too long to read whole."""
