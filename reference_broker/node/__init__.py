"""The shell: sockets, timers, threads and files, and the wiring of the pure cores to them."""
