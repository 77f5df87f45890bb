"""What heads of every engine share: the positions that they read, and rows drawn from."""
