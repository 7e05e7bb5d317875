"""The store of report tables: its tables, how publications land, and how a reader gets them.

:mod:`reports.store.schema` names the tables. No module of this package starts a JVM.
"""

import os

# delta-rs logs warnings to stderr, pages of them for a missing credential; its errors arrive as exceptions.
os.environ.setdefault("RUST_LOG", "error")
