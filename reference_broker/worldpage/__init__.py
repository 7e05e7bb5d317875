"""A page on which a reader sees a cluster think.

Recorded events come in (:mod:`~reference_broker.worldpage.events`), and one HTML file goes out
(:mod:`~reference_broker.worldpage.page`). The simulator is one source of events; the package knows neither the
simulator nor a node.
"""
