"""Publishers: their messages, the window of messages in flight, and the broker's answers."""
