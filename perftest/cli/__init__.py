"""The command: one file per command, each of which parses, builds a plan, calls one function, and prints."""
