"""The run as a whole: the requests to workers, their times, and the records."""
