"""Reports in the browser, from this machine only: a list of runs with charts by day, pages of runs and comparisons on
demand, and runs in progress, live. In come run directories and addresses, out go pages. Templates and scripts lie
beside the modules.
"""
