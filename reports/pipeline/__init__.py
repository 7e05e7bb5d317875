"""The data pipeline: run directories in, a Parquet store of tables out.

:mod:`reports.store.schema` names the tables; :mod:`reports.store.store` reads a store without a JVM;
``python -m reports.pipeline RUN... --store DIR`` fills one. Importing this package imports neither pyspark nor a
JVM: only :mod:`reports.pipeline.session`, :mod:`reports.pipeline.frames`, :mod:`reports.pipeline.stages`,
:mod:`reports.pipeline.use` and :mod:`reports.pipeline.run` do.
"""
