"""Headers and settings of model files, read without an engine and without trusting them."""
