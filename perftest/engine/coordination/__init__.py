"""The run as a whole: who is told what, when, and what is recorded of it."""
