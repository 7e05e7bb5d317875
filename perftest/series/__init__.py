"""Several measured runs that belong together: rounds, layouts, the two sides of a comparison, the probes of a search.

In come a plan and what to repeat. Out come run directories below one directory, verdicts over all of them, and an exit
code. What is interrupted here goes on where it stopped.
"""
