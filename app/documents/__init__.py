"""What files say: text of any kind of file, folders, and passages of what is too long."""
