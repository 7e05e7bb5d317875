"""A block device of a modelled drive: one file over FUSE, for a loop device and a real file system (Linux, root)."""
