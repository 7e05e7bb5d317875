"""The figures of a running load for monitoring systems.

Intervals of workers come in. Prometheus may fetch metrics (:mod:`perftest.telemetry.prometheus`), and a collector of
OpenTelemetry is sent metrics (:mod:`perftest.telemetry.otlp`), both from threads of their own.
"""
