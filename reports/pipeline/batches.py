"""What Spark's Python workers take and give: Arrow batches. Nothing in their modules imports pyspark.

:mod:`reports.pipeline.parsing` gives the records of lines, :mod:`reports.pipeline.histograms` works on histograms. A
``mapInArrow`` function sees an iterator of batches and must cope with an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]
Row = dict[str, Any]
