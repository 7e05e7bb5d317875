"""What a broker tells of itself over HTTP: answers as RabbitMQ 3.10.8 gives them, from a server on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from infra import local_cluster, rabbitmq_cluster
from infra.cluster import ClusterError
from perftest.measuring import broker_answers, broker_metrics, samplers
from perftest.measuring.broker_metrics import BrokerMetrics
from perftest.results.provenance import redact_command
from perftest.results.run_checks import Disturbances, facts_of, run_checks
from perftest.screen.node_lines import NodeBoard
from perftest.spec.units import UnitError, parse_http_url

DATA = Path(__file__).parent / "data" / "broker_answers"
LOGIN = "watcher:pa:ss@w/rd"


def text(name: str) -> str:
    return DATA.joinpath(name).read_text()


class Site:
    """An HTTP server on loopback; ``broken`` makes it answer with an error."""

    def __init__(self, answers: dict[str, str], login: str = "") -> None:
        self.answers = dict(answers)
        self.broken = False
        self._login = login
        self.url = ""

    async def __aenter__(self) -> Site:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        login = "watcher:pa%3Ass%40w%2Frd@" if self._login else ""
        self.url = f"http://{login}{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=503)
        login = f"Basic {base64.b64encode(self._login.encode()).decode()}"
        if self._login and request.headers.get("Authorization") != login:
            return web.Response(status=401)
        body = self.answers.get(request.path)
        return web.Response(status=404) if body is None else web.Response(text=body)


MANAGEMENT = {f"/api/{name}": text(f"{name}.json") for name in ("nodes", "queues", "overview")} | {"/": "<html></html>"}
PROMETHEUS = {"/metrics": text("rabbitmq_metrics.txt"), "/metrics/per-object": text("rabbitmq_per_object.txt")}


async def sampled(*urls: str, times: int = 1) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The last records, and the events."""
    events: list[dict[str, Any]] = []
    metrics = BrokerMetrics(urls, events.append)
    records: list[dict[str, Any]] = []
    for number in range(times):
        records = await metrics.sample(number)
    return records, events


@pytest.mark.parametrize("path", ["/metrics", "/", "", "/metrics/per-object", "/metrics/"])
def test_metrics_for_prometheus_are_recognised_by_the_answer(path: str) -> None:
    async def scenario() -> None:
        async with Site(PROMETHEUS) as site:
            (record,), events = await sampled(site.url + path)
        assert not events
        assert record["node"] == "rabbit@host0" and record["t_ns"] == 0
        assert (record["cpu_ns"] // 10**8, record["cpu_kind"]) == (49, "user")
        assert record["rss_bytes"] > 100e6
        assert ("pid" in record) is ("per-object" not in path), "only one of the two tells when the process started"
        metrics = record["metrics"]
        assert (metrics["messages"], metrics["messages_ready"], metrics["messages_unacked"]) == (3005, 3005, 0)
        assert metrics["connections"] == metrics["channels"] == metrics["queues"] == 1
        assert metrics["disk_free_bytes"] > 1e9 and metrics["disk_syncs"] == 118
        named = [{"name": "q", "messages": 3005, "messages_ready": 3005, "messages_unacked": 0}]
        assert record["queues"] == (named if "per-object" in path else [])

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["", "/", "/api/overview", "/api/nodes"])
def test_the_management_api_is_recognised_by_the_answer(path: str) -> None:
    async def scenario() -> None:
        async with Site(MANAGEMENT, LOGIN) as site:
            (record,), events = await sampled(site.url + path)
        assert not events
        assert record["node"] == "rabbit@host0" and record["pid"] == 12960 and record["rss_bytes"] == 150_056_960
        assert "cpu_ns" not in record, "the API tells no CPU time, and none is invented"
        assert record["metrics"]["messages"] == 3005 and record["metrics"]["connections"] == 1
        assert record["queues"][0]["name"] == "q"

    asyncio.run(scenario())


def test_several_addresses_of_one_node_make_one_record() -> None:
    """Depths of each queue from one, CPU and memory from another."""

    async def scenario() -> None:
        answers = {**PROMETHEUS, "/metrics/detailed": text("rabbitmq_detailed.txt")}
        async with Site(answers) as site, Site(MANAGEMENT, LOGIN) as management:
            detailed = f"{site.url}/metrics/detailed?family=queue_coarse_metrics"
            (record,), _ = await sampled(detailed, f"{site.url}/metrics", management.url)
        assert record["cpu_ns"] and record["queues"][0]["messages"] == 3005
        assert record["metrics"]["disk_free_bytes"] and record["metrics"]["messages"] == 3005

    asyncio.run(scenario())


def test_an_address_that_fails_is_told_of_once_and_asked_again() -> None:
    """It ends no run, and what comes back is there again."""

    async def scenario() -> None:
        events: list[dict[str, Any]] = []
        async with Site(MANAGEMENT, LOGIN) as site:
            metrics = BrokerMetrics([site.url], events.append)
            assert await metrics.sample(1)
            site.broken = True
            assert await metrics.sample(2) == await metrics.sample(3) == []
            site.broken = False
            assert await metrics.sample(4)
        assert [(event["kind"], event["t_ns"]) for event in events] == [("metrics_lost", 2), ("metrics_back", 4)]
        assert "HTTP 503" in events[0]["text"]
        assert await metrics.sample(5) == [], "nobody listens any more"
        assert len(events) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "login", "says"),
    [
        ({"/": "<html></html>"}, "", "neither metrics for Prometheus nor RabbitMQ's management API"),
        ({"/metrics": "up 1\n"}, "", "neither metrics for Prometheus"),
        ({"/metrics": "rabbitmq_queue_messages{ 1\n"}, "", "neither metrics"),
        ({"/api/nodes": "{}", "/api/queues": "[]", "/api/overview": "[]"}, "", "neither metrics"),
        ({"/api/nodes": "[1, {}]", "/api/queues": "[{}]", "/api/overview": "7"}, "", "neither metrics"),
        (MANAGEMENT, "another:one", "user or password is refused"),
    ],
)
def test_what_is_no_broker_is_said_to_be_none_and_no_password_is_shown(
    answers: dict[str, str], login: str, says: str
) -> None:
    async def scenario() -> None:
        async with Site(answers, login) as site:
            url = site.url.replace("http://watcher:pa%3Ass%40w%2Frd@", "http://")
            records, events = await sampled(url.replace("http://", "http://me:topsecret@"), times=2)
        assert records == []
        (event,) = events
        assert event["kind"] == "metrics_lost" and says in event["text"]
        assert "topsecret" not in str(event) and "me:" not in str(event)

    asyncio.run(scenario())


def test_a_broker_that_does_not_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is sampled all the same."""
    monkeypatch.setattr(broker_metrics, "TIMEOUT_S", 0.2)

    async def scenario() -> None:
        release = asyncio.Event()

        async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Site(PROMETHEUS) as site:
            records, events = await sampled(f"http://127.0.0.1:{port}/metrics", f"{site.url}/metrics")
        release.set()
        server.close()
        await server.wait_closed()
        assert [record["node"] for record in records] == ["rabbit@host0"]
        assert [event["kind"] for event in events] == ["metrics_lost"] and "no answer within" in events[0]["text"]

    asyncio.run(scenario())


def test_an_answer_without_an_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_metrics, "ANSWER_BYTES_MAX", 1000)

    async def scenario() -> None:
        async with Site({"/metrics": "rabbitmq_connections 1\n" * 1000}) as site:
            records, events = await sampled(f"{site.url}/metrics")
        assert (records, len(events)) == ([], 1)

    asyncio.run(scenario())


def test_the_bundled_brokers_own_metrics_are_read() -> None:
    """Under the names of its own samples: the live screen shows its syncs, too."""
    answer = (
        'rabbitmq_identity_info{rabbitmq_node="node1",rabbitmq_cluster="c"} 1\n'
        "process_cpu_seconds_total 12.5\n"
        "rabbitmq_raft_log_wal_syncs_total 812\nrabbitmq_raft_log_sync_ns_total 99\nrabbitmq_raft_log_segment_files 2\n"
        'rabbitmq_queue_messages{queue="a"} 5\nrabbitmq_queue_messages{queue="b"} 7\n'
    )
    record = broker_answers.of_text(answer, "h:1")
    assert record is not None
    assert (record["node"], record["cpu_ns"], record.get("cpu_kind")) == ("node1", 12_500_000_000, None)
    assert record["metrics"] == {"wal_syncs": 812, "sync_ns_total": 99, "segment_files": 2, "messages": 12}
    assert [queue["name"] for queue in record["queues"]] == ["b", "a"]


def test_rabbitmqs_octets_to_its_peers_are_the_links_of_the_record() -> None:
    """A command of the operator is a peer, too, but no node."""
    answer = (
        'erlang_vm_dist_send_bytes{peer="rabbit@b"} 4100\nerlang_vm_dist_send_bytes{peer="rabbit@c"} 7\n'
        'erlang_vm_dist_send_bytes{peer="rabbitmqcli-12-rabbit@a"} 99\nerlang_vm_dist_recv_bytes{peer="rabbit@b"} 5\n'
    )
    record = broker_answers.of_text(answer, "h:1")
    assert record is not None
    assert record["links"] == {"rabbit@b": {"distribution": 4100}, "rabbit@c": {"distribution": 7}}


def test_samples_go_into_the_run_directory_and_to_the_screen() -> None:
    """In the same records as those of the bundled cluster; that CPU is user time only is on record, too."""
    written: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    nodes = NodeBoard()

    async def scenario() -> None:
        async with Site(PROMETHEUS) as site:
            plan = SimpleNamespace(interval_s=1.0)
            writer = SimpleNamespace(broker=written.append, event=None, plan=plan, describe_broker=facts.update)
            metrics = BrokerMetrics([site.url], lambda event: None)
            sampler = samplers.Sampler(cast(Any, writer), None, show=nodes.sample, metrics=metrics)
            await sampler.remote_nodes()
            site.answers["/metrics"] = site.answers["/metrics"].replace("_milliseconds 4932", "_milliseconds 5932")
            await sampler.remote_nodes()

    asyncio.run(scenario())
    first, second = written
    assert second["cpu_ns"] - first["cpu_ns"] == 1_000_000_000
    assert json.loads(json.dumps(first)) == first
    (row,) = nodes.rows()
    assert (row.name, row.messages, row.connections, row.commit) == ("rabbit@host0", 3005, 1, None)
    assert row.cpu is not None and row.cpu > 0 and row.disk_free_bytes is not None
    assert facts == {"cpu_kind": "user"}
    checks = run_checks(facts_of({"plan": {"steps": []}, "broker": facts}), (), None, Disturbances())
    assert "user CPU time only" in next(c.text for c in checks if c.check == "broker_cpu")


@pytest.mark.parametrize("url", ["", "host:15672", "amqp://h", "http://", "http://h:port", "ftp://me:topsecret@h"])
def test_an_address_that_cannot_be_asked_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_http_url(url)
    assert "topsecret" not in f"{caught.value.rule}{caught.value.fix}"


def test_no_password_of_an_address_is_kept() -> None:
    """A manifest has the command, and the broker's addresses."""
    words = redact_command(["run", "--broker-metrics", "http://me:topsecret@h:15672", "--broker-metrics=https://a:b@h"])
    assert words[2] == "http://me:***@h:15672" and words[3] == "--broker-metrics=https://a:***@h"
    assert BrokerMetrics(["http://me:topsecret@h:15672/"], lambda event: None).shown == ["http://h:15672"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("run", "-z", "1"), "the local cluster's figures are there anyway"),
        (("sweep", "--vary", "in_flight=1,2"), "the local cluster's figures are there anyway"),
        (("run", "-z", "1", "--broker", "rabbitmq"), "the RabbitMQ that is started here is asked"),
        (("sweep", "--vary", "in_flight=1,2", "--broker", "rabbitmq"), "the RabbitMQ that is started here is asked"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_addresses_that_have_no_effect_are_told(
    call: Callable[..., tuple[int, str, str]],
    command: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing is known of a broker that is not there yet."""

    def stop(*_given: object, **_more: object) -> None:
        raise ClusterError("stop here", "the test", "none")

    monkeypatch.setattr(local_cluster, "temporary", stop)
    monkeypatch.setattr(rabbitmq_cluster, "require", stop)
    code, _out, err = call(*command, "--broker-metrics", "http://h:15692/metrics", "--out", str(tmp_path))
    assert code == 1 and "stop here" in err and says in err
