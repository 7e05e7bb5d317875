"""The management API over HTTP: the part of RabbitMQ's that people and libraries script, and a page for the browser."""
