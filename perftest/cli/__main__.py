"""``python -m perftest.cli`` is ``perftest``."""

from perftest.cli.main import main

main()
