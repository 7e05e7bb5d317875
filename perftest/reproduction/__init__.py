"""Published findings, tried again within the time that there is: which trials run, when, and what they showed.

:mod:`~perftest.reproduction.experiments` chooses the workloads, :mod:`~perftest.reproduction.schedule` (pure) the next
trial, :mod:`~perftest.reproduction.campaign` measures the trials and keeps their state on disk, and
:mod:`~perftest.reproduction.outcome` judges what was recorded. Every trial is a command of its own: what goes wrong in
one costs no other.
"""
