"""The content of a page: tables of a store go in, a :class:`reports.pages.model.Page` comes out.

This layer chooses, counts and words; it knows no HTML (:mod:`reports.html` renders) and no colours
(:mod:`reports.charts` draws).
"""
