"""A worker process: its share of the clients, what can be asked of it, and how it does."""
