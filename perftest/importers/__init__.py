"""Converts loads of other tools into workload files.

Each importer is a pure function of text. It returns workloads as plain values in the order of a file, and a
:class:`~perftest.importers.notes.ImportNote` for every part of the source whose meaning changed or which was left out.
Nothing is left out silently: a source is read through :class:`~perftest.importers.section.SourceSection`, which names
every key that no importer asked for.
"""
