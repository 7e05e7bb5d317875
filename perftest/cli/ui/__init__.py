"""The output at the end of a command: tables, and the summary of a run."""
