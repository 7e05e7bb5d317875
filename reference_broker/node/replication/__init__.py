"""Replication: the members of Raft groups on this node, and the commands on their way through them.

In come commands of this node's clients, frames of other members, ticks, and news of the log. Out go entries to the log,
frames to other members, and applied commands in order. What a command means is the business of the group's machine.
"""
