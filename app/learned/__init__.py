"""What was measured or learned on this machine, kept on disk for the next start."""
