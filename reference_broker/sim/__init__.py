"""A world in one thread: the production nodes on a virtual clock, a network, disks and clients that one seed drives."""
