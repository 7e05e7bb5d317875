"""How time is measured and kept: one clock, histograms with HdrHistogram's edges, intervals."""
