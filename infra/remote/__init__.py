"""Hosts that take part in a run over SSH: requests to them, their answers, and the files that they are sent."""
