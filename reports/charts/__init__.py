"""Figures of the report: a table goes in, a Plotly figure as plain JSON data comes out.

No function here reads a file or imports plotly; the page's script hands the data to plotly.js. Three conventions make
one figure serve both themes and every latency unit:

- A colour is a *token*, such as ``"@ink"`` or ``"@scale/0.40"``; :func:`reports.charts.theme.resolve` (and the page's
  script) replaces it by the colour of the theme.
- Latencies are milliseconds. A trace names the arrays that hold them in ``meta.latency``, the layout names its latency
  axes in ``meta.latency_axes``; the text ``{unit}`` in titles and hover texts is the unit's name. Choosing another unit
  scales these arrays and replaces the text.
- Whatever distinguishes two traces by colour also distinguishes them by marker or dash.
"""
