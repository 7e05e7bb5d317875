"""The checkers of a world: each is shown what passes, compares it with what it keeps itself, and raises
:class:`~reference_broker.sim.checks.invariants.ViolationError`. ``ledger`` is the account of all messages."""
