"""The data pipeline: run directories in, a store of Delta tables out.

:mod:`reports.store.schema` names the tables; :mod:`reports.store.store` reads a store without a JVM;
``python -m reports.pipeline RUN... --store DIR`` fills one. Importing this package imports neither pyspark nor a
JVM: only :mod:`reports.pipeline.session`, :mod:`reports.pipeline.executors`, :mod:`reports.pipeline.frames`,
:mod:`reports.pipeline.large_runs` and :mod:`reports.pipeline.spark_jobs` do.
"""
