"""Modelled drives: profiles as data, and a model that says when an operation would be over. Pure."""
