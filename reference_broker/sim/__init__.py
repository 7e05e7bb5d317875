"""The simulator: production nodes in one thread, on a virtual clock, network, disks and clients that one seed
drives."""
