"""Where brokers and load run: local processes now, hosts later."""
