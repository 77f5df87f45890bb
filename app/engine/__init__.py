"""The engine thread, its sessions and answers, and what they report."""
