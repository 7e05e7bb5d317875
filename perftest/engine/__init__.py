"""How a plan is executed: pure pacing, windows and acknowledgement; publishers, consumers, worker, coordinator."""
