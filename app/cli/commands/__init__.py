"""The commands of `specchat`, one module each."""
