"""N-gram statistics learned online from what the model generates."""
