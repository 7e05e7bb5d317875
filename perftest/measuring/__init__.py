"""A measured run, from its plan to its exit code, without a word of command lines.

In come a plan and :class:`~perftest.measuring.session_options.Options`. Out come a run directory and an exit code;
brokers, samplers, exports and signals of the run are here.
"""
