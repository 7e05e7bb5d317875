"""The kinds of queues, between the node that hosts them and the machines that decide."""
