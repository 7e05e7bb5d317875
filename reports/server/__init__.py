"""Reports in the browser, from this machine only: a list of runs, their pages on demand, and runs in progress, live."""
