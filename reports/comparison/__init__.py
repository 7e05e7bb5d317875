"""Two measurements side by side: are they alike, what changed, and can it be told from chance?

``facets`` says what differs between the runs beside what was measured; ``figures`` reads what was measured, as figures
that can be drawn again; ``compare`` puts them together; ``text`` writes them for people.
"""
