"""The fate of every message of a run, and its latency."""
