"""A lab: several hosts on one machine, with an sshd, addresses, clocks and faulty links of their own (Linux, root)."""
