"""The status page in a real browser, with a real cluster behind it."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from infra import local_cluster
from tests.integration.test_management_as_rabbitmq import Api
from tests.integration.testing.pika_clients import connect
from tests.integration.testing.scripts import until
from tests.reports.browser.browsing import MARKS, Browser
from tests.reports.browser.devtools import Tab

pytestmark = [pytest.mark.slow, pytest.mark.processes, *MARKS]


def test_the_page_shows_what_there_is(browser: Browser, tmp_path: Path) -> None:
    with local_cluster.temporary(tmp_path) as cluster:
        connection = connect(cluster.uris[0])
        channel = connection.channel()
        channel.queue_declare("<b>orders</b>", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for _ in range(7):
            channel.basic_publish("", "<b>orders</b>", b"m")
        channel.queue_declare("by customer", durable=True, arguments={"x-queue-type": "keyed"})
        for key in "aab":
            channel.basic_publish("", "by customer", b"m", pika.BasicProperties(headers={"x-group-key": key}))
        channel.basic_get("by customer")
        local_cluster.kill(cluster, "node3")
        port = cluster.nodes[0].metrics_port
        until(Api(f"http://127.0.0.1:{port}").is_there)

        async def look(tab: Tab) -> str:
            await tab.open(f"http://guest:guest@127.0.0.1:{port}/")
            await tab.until("document.getElementById('age').textContent === 'live'")
            return str(await tab.ask("document.documentElement.outerHTML"))

        page = browser.run(look)
        connection.close()
    assert f"Cluster {cluster.cluster}" in page and ">live<" in page
    assert "&lt;b&gt;orders&lt;/b&gt;" in page and '<td class="n">7</td>' in page
    assert "<td>keyed, 1 of 2 keys out</td>" in page
    assert '<td class="down">down</td>' in page and "node3 (down)" in page
