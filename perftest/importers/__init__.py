"""Loads of other tools as workload files, and what of them there is no equivalent for.

Each importer is a function of text: workloads as plain values in the order of a file, and a
:class:`~perftest.importers.notes.Note` for everything that changed its meaning or was left out. Nothing is left out in
silence: a source is read through :class:`~perftest.importers.section.Section`, which names every key that nobody asked
for.
"""
