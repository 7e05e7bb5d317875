"""A real RabbitMQ of one or three nodes on loopback, to measure beside the bundled broker.

An installed RabbitMQ service is not touched. The nodes have their own ports, epmd, cookie, data and configuration below
one directory, and only the plugins that are asked for. They listen on 127.0.0.1 and end with the ``with`` block.
Everything else is RabbitMQ's default: a WAL with fdatasync, confirms from a majority.

The module needs the ``rabbitmq-server`` package (Debian: ``apt-get install rabbitmq-server``; its service need not
run).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from infra.node_process import MARK
from infra.ports import HOST, free_ports
from infra.register import Kind, Register
from perftest.errors import HelpfulError

LIBRARY: Final = Path("/usr/lib/rabbitmq/bin")
_START_TIMEOUT_S: Final = 120
_STOP_TIMEOUT_S: Final = 30
_POLL_S: Final = 0.1


class RabbitMQError(HelpfulError):
    """RabbitMQ cannot be started."""


def is_installed() -> bool:
    """Whether the RabbitMQ scripts are where Debian's package puts them."""
    return (LIBRARY / "rabbitmq-server").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQ:
    """A running cluster.

    ``pids`` are the processes of the Erlang emulators, in node order; their CPU time is the broker's. ``control`` runs
    ``rabbitmqctl`` on the first node.
    """

    uris: tuple[str, ...]
    pids: tuple[int, ...]
    control: Callable[..., None]


@contextlib.contextmanager
def running(parent: Path, nodes: int = 3, configuration: str = "", plugins: Sequence[str] = ()) -> Iterator[RabbitMQ]:
    """Start a cluster with its data below ``parent``; stop the cluster and remove the data at the end.

    ``configuration`` is added to each node's ``rabbitmq.conf``, and must name the ports of the enabled ``plugins``.
    Raises :class:`RabbitMQError` if RabbitMQ is not installed or does not start.
    """
    if not is_installed():
        fix = "install it (Debian: apt-get install rabbitmq-server); its own service need not run"
        raise RabbitMQError("RabbitMQ is not installed", str(LIBRARY), fix)
    directory = parent.absolute() / f".rabbitmq-{secrets.token_hex(4)}"
    cluster = _Cluster(directory, nodes, configuration, plugins)
    register = Register(parent)
    register.note(Kind.DIRECTORY, str(directory))
    register.note(Kind.PROCESSES, str(directory))
    try:
        yield cluster.start()
    finally:
        cluster.stop()
        register.forget(Kind.PROCESSES, str(directory))
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():  # else something is mounted there, and the next cleaning says so
            register.forget(Kind.DIRECTORY, str(directory))


class _Cluster:
    def __init__(self, directory: Path, nodes: int, configuration: str, plugins: Sequence[str]) -> None:
        self._directory = directory
        self._plugins = plugins
        self._configuration = f"loopback_users.guest = true\nlog.file.level = warning\n{configuration}"
        self._tag = secrets.token_hex(3)
        self._epmd_port, *ports = free_ports(1 + 2 * nodes)
        self._amqp_ports, self._distribution_ports = ports[:nodes], ports[nodes:]
        self._nodes = range(nodes)
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self) -> RabbitMQ:
        home = self._directory / "home"
        home.mkdir(parents=True, mode=0o700)
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16).upper())
        cookie.chmod(0o400)
        (self._directory / "no-env.conf").touch()
        (self._directory / "plugins").write_text(f"[{','.join(self._plugins)}].")
        (self._directory / "rabbitmq.conf").write_text(self._configuration)
        self._spawn(["epmd", "-address", HOST, "-port", str(self._epmd_port)], self._environment(), "epmd.log")
        servers = []
        for node in self._nodes:  # the first node first, because the other nodes join it
            servers.append(self._spawn([str(LIBRARY / "rabbitmq-server")], self._environment(node), f"node{node}.log"))
            self._await(node, servers[node])
        for node in self._nodes[1:]:
            self._control(node, "stop_app")
            self._control(node, "join_cluster", self._name(0))
            self._control(node, "start_app")
        for node in self._nodes:
            self._control(node, "await_online_nodes", str(len(self._nodes)))
        return RabbitMQ(
            uris=tuple(f"amqp://guest:guest@{HOST}:{port}/%2f" for port in self._amqp_ports),
            pids=tuple(_emulator(server.pid) for server in servers),
            control=functools.partial(self._control, 0),
        )

    def stop(self) -> None:
        """End the started processes, the nodes before epmd; processes are found by pid and not by name."""
        for child in reversed(self._children):
            family = _family(child.pid)
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _gone, alive = psutil.wait_procs(family, timeout=_STOP_TIMEOUT_S)
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            child.wait()

    def _name(self, node: int) -> str:
        return f"perftest{self._tag}{node}@localhost"

    def _environment(self, node: int | None = None) -> dict[str, str]:
        directory = self._directory
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ERL_", "RABBITMQ_"))},
            MARK: str(directory),
            "HOME": str(directory / "home"),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "no-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "LC_ALL": "C.UTF-8",
        }
        if node is not None:
            environment |= {
                "RABBITMQ_NODENAME": self._name(node),
                "RABBITMQ_NODE_IP_ADDRESS": HOST,
                "RABBITMQ_NODE_PORT": str(self._amqp_ports[node]),
                "RABBITMQ_DIST_PORT": str(self._distribution_ports[node]),
                "RABBITMQ_MNESIA_BASE": str(directory / f"node{node}"),
                "RABBITMQ_LOG_BASE": str(directory / f"node{node}" / "log"),
                "RABBITMQ_PID_FILE": str(directory / f"node{node}.pid"),
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            }
        return environment

    def _spawn(self, command: list[str], environment: dict[str, str], log: str) -> subprocess.Popen[bytes]:
        with (self._directory / log).open("wb") as output:
            child = subprocess.Popen(
                command,
                env=environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def _await(self, node: int, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        pid_file = self._directory / f"node{node}.pid"
        while not (pid_file.exists() and pid_file.read_text().strip()):
            if server.poll() is not None or time.monotonic() > deadline:
                log = self._directory / f"node{node}.log"
                raise RabbitMQError("RabbitMQ did not start", f"node {node + 1}", _tail(log))
            time.sleep(_POLL_S)
        self._control(node, "wait", "--pid", pid_file.read_text().strip(), "--timeout", str(_START_TIMEOUT_S))

    def _control(self, node: int, *arguments: str) -> None:
        command = [str(LIBRARY / "rabbitmqctl"), "-q", "-n", self._name(node), *arguments]
        done = subprocess.run(
            command, env=self._environment(), cwd=self._directory, capture_output=True, timeout=_START_TIMEOUT_S
        )
        if done.returncode:
            raise RabbitMQError(f"rabbitmqctl {arguments[0]} failed", self._name(node), done.stderr.decode()[-500:])


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _emulator(pid: int) -> int:
    """The Erlang emulator below a start script: the process that uses the CPU."""
    named = [process for process in _family(pid) if process.name().startswith("beam")]
    return int(named[0].pid) if named else pid


def _tail(log: Path) -> str:
    return f"its last words: {log.read_text(errors='replace')[-500:]}"
