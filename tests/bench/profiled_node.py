"""A node under cProfile, for :mod:`tests.bench.profile`: SIGUSR1 begins, SIGUSR2 ends and writes ``profile`` beside
``node.json``."""

from __future__ import annotations

import cProfile
import signal
import sys
from pathlib import Path

from reference_broker.node.__main__ import main

if __name__ == "__main__":
    profile = cProfile.Profile()
    path = Path(sys.argv[sys.argv.index("--config") + 1]).with_name("profile")

    def end(*_: object) -> None:
        profile.disable()
        profile.dump_stats(path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)

    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    signal.signal(signal.SIGUSR2, end)
    sys.exit(main())
