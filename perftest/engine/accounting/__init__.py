"""What became of every message of a run, and how long it took."""
