"""What pages say of several runs together: side by side, as rounds of one plan, by layout, over time, and two sides.

Tables of several runs come in, and judgements of :mod:`reports.comparison` and :mod:`reports.stats`. Models of
:mod:`reports.pages.model` go out. What belongs to one run is in the modules beside this room.
"""
