"""Who may do what: users, virtual hosts, permissions and limits. Pure: no sockets, no clocks."""
