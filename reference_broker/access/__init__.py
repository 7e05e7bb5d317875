"""Users, virtual hosts, permissions and limits. Pure: no sockets, no clocks."""
