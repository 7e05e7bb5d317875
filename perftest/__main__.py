"""``python -m perftest`` is ``perftest``."""

from perftest.cli.main import main

main()
