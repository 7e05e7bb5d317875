"""When each message should leave: a schedule that is fixed in advance, whatever the broker does."""
