"""An AMQP 0-9-1 client made for generating load: a pure protocol core, a thin transport, and a fast path for runs."""
