"""The catalogue: many runs in one store, found by their properties (:mod:`reports.catalogue.listing`), marked by people
(:mod:`reports.catalogue.annotations`) and asked in SQL (:mod:`reports.catalogue.query`). No module starts a JVM.
"""
