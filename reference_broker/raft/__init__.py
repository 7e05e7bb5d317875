"""Raft after Ra: a pure core for one member of one group. Start reading at ``ready``, then ``core``."""
