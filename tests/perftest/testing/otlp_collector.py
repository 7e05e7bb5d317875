"""A collector of OpenTelemetry on the loopback, which keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector(ThreadingHTTPServer):
    """``got`` has path and content of each request; ``status`` is the answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.got: list[tuple[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def metrics(self) -> dict[str, Any]:
        """The metrics of the last request, by name."""
        (resource,) = self.got[-1][1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        octets = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            octets = gzip.decompress(octets)
        self.server.got.append((self.path, ExportMetricsServiceRequest.FromString(octets)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that answers within the block."""
    made = Collector()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a point or a resource."""
    return {each.key: each.value.string_value or each.value.int_value for each in of.attributes}
