"""The machine of the metadata group: which queues, exchanges, policies, users and virtual hosts the cluster has.
Pure."""
