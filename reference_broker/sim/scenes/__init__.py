"""Scenes for readers: a small cluster without trouble of its own, led step by step by a script.

A script comes in (``cut_off``, ``leaders``, ``writes``, ``troubled_messages``, ``membership``), leads a
:class:`~reference_broker.sim.scenes.scene.Scene`, and tells the reader what to look at. The events of the scene go out
(``catalogue``), and ``python -m reference_broker.sim.scenes FOLDER`` draws each scene as a page.
"""
