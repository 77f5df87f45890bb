"""The commands of `specchat`."""
