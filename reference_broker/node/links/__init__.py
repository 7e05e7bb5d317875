"""The links of a node: its TCP connections with other nodes.

In come sockets and octets. Out go whole frames, each handed to the floor above
(:mod:`reference_broker.node.peer_frames`), and news of which nodes are up. A link proves both sides' identity and knows
nothing of queues or Raft.
"""
