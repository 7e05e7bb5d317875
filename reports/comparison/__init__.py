"""Two measurements side by side: are they alike, what changed, and can it be told from chance?

``facets`` finds differences between the runs themselves, such as other plans or other machines. ``figures`` reads the
measured figures. ``compare`` judges the changes. ``text`` writes the comparison for people and programs.
"""
