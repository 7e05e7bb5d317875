"""Publishers: what they send, how much of it may be in flight, and what comes back."""
