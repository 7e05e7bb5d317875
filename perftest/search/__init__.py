"""Decides the next probe of a search, and its answer: the highest rate that passes, or the best setting.

Pure: rates and verdicts in, the next probe and sentences out. ``bracket`` finds the highest rate of one setting, and
``frontier`` compares settings. The probes themselves are runs like any other (:mod:`perftest.series.probes`).
"""
