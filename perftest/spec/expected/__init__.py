"""What a run is expected to show: objectives, and the findings of a source as trends."""
