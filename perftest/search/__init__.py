"""The highest rate that meets objectives, and the setting that serves best: what to try next, and what it all says.

Pure: rates and verdicts in, the next probe and sentences out. ``bracket`` closes in on the limit of one setting,
``frontier`` compares settings. The probes themselves are runs like any other (:mod:`perftest.cli.probes`).
"""
