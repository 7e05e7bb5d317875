"""The clients of a node: their connections, their channels, and what each user may do.

In come the events of the AMQP protocol core and the results of queues. Out go commands to queues, changes of the
metadata, and methods to the client. A channel reaches a queue through one port, whatever the kind of queue.
"""
