"""The expectations of a run: objectives, and the findings of a source as trends."""
