"""What every world at virtual time is made of: an agenda, an event loop for each process, and connections.

:mod:`reference_broker.sim` makes worlds full of trouble of these parts, and :mod:`reference_broker.virtual` worlds in
which everything takes as long as on a modelled machine. Each gives the parts what only its worlds know: when a callback
has its turn, and what the network does to octets.
"""
