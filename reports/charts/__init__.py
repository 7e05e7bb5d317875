"""Figures of the report: a table goes in, a Plotly figure as plain JSON data comes out.

No function here reads a file or imports plotly; the page's script hands the data to plotly.js. Three conventions make
one figure serve both themes and every latency unit:

- A colour is a *token*, such as ``"@ink"`` or ``"@scale/0.40"``; :func:`reports.charts.theme.resolve` (and the page's
  script) replaces it by the colour of the theme.
- Latencies are milliseconds. A trace names its arrays of latencies in ``meta.latency``, and the layout names its
  latency axes in ``meta.latency_axes``. The text ``{unit}`` in titles and hover texts stands for the unit. When a
  reader chooses another unit, the script scales these arrays and replaces the text.
- Two traces with different colours also have different markers or dashes.
"""
