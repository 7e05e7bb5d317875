"""Links between hosts: the changes to them, who makes the changes, and how they are undone."""
