"""Hosts that take part in a run over SSH: what they are told, what they tell, what they are sent."""
