"""Links between hosts: what can be done to them, by whom, and how it is undone."""
