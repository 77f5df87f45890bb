"""Reading ahead: the model reads what will be asked while the user still types."""
