"""A real RabbitMQ of one, three or five nodes on loopback, to measure beside the bundled broker.

An installed RabbitMQ service is not touched. The nodes have their own ports, epmd, cookie, data and configuration below
one directory, and only the plugins that are asked for. They listen on 127.0.0.1 and end with the ``with`` block.
Everything else is RabbitMQ's default: a WAL with fdatasync, confirms from a majority.

The module needs the ``rabbitmq-server`` package (Debian: ``apt-get install rabbitmq-server``; its service need not
run), or the *home* of another RabbitMQ: a directory with the scripts ``rabbitmq-server`` and ``rabbitmqctl`` in
``sbin``, as RabbitMQ's generic package for Unix has them. The scripts run the ``erl`` of the PATH.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

from infra.layout import NODE, PlacedLayout
from infra.node_process import MARK
from infra.ports import HOST, free_ports
from infra.register import Register, UndoKind
from perftest.errors import HelpfulError

LIBRARY: Final = Path("/usr/lib/rabbitmq")
"""Home of the RabbitMQ of Debian's package."""
_SCRIPTS: Final = ("rabbitmq-server", "rabbitmqctl")
_FOLDERS: Final = ("sbin", "bin", "")
"""Folders of a home in which the scripts may be."""
ROLES: Final = ("data", "logs", "segment", "wal", "classic")
"""Roles of a drive: metadata, log files, segments and snapshots of quorum queues, their WAL, and the files of classic
queues, which always lie with the metadata."""
IO_THREADS: Final = 10
"""Erlang's default number of dirty I/O schedulers."""
_METRICS_PLUGIN: Final = "rabbitmq_prometheus"
_LOOPBACK_ONLY: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
_START_TIMEOUT_S: Final = 120
_STOP_TIMEOUT_S: Final = 30
_POLL_S: Final = 0.1


class RabbitMQError(HelpfulError):
    """RabbitMQ cannot be started."""


def scripts_in(home: Path) -> Path | None:
    """The folder of the scripts in the home of a RabbitMQ; None if there are none."""
    folders = [home.absolute() / name for name in _FOLDERS]
    return next((each for each in folders if all((each / script).exists() for script in _SCRIPTS)), None)


def is_installed() -> bool:
    """Whether the RabbitMQ scripts are where Debian's package puts them."""
    return scripts_in(LIBRARY) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQ:
    """A running cluster.

    ``pids`` are the processes of the Erlang emulators, in node order, from the first start; their CPU time is the
    broker's. ``metrics`` are the addresses of the nodes' own figures, if these were asked for. ``control`` runs
    ``rabbitmqctl`` on the first node. ``kill`` ends all nodes with SIGKILL, and ``restart`` starts them again with
    their data.
    """

    uris: tuple[str, ...]
    pids: tuple[int, ...]
    metrics: tuple[str, ...]
    control: Callable[..., None]
    kill: Callable[[], None]
    restart: Callable[[], None]


def require(home: Path | None = None) -> None:
    """Raise :class:`RabbitMQError` unless RabbitMQ is installed, or is in this ``home``."""
    if home is not None:
        if scripts_in(home) is None:
            fix = f"name the directory of an unpacked RabbitMQ, which has sbin/{_SCRIPTS[0]} and sbin/{_SCRIPTS[1]}"
            raise RabbitMQError("there is no RabbitMQ in this directory", str(home), fix)
    elif not is_installed():
        fix = "install it (Debian: apt-get install rabbitmq-server); its own service need not run"
        raise RabbitMQError("RabbitMQ is not installed", str(LIBRARY), fix)


def node_name(node: int) -> str:
    """The name by which a layout knows a node, which counts from 0: ``node1``."""
    return f"node{node + 1}"


def with_its_threads(layout: PlacedLayout) -> PlacedLayout:
    """The layout with the I/O policy that RabbitMQ has: all file operations of a node go through one pool."""
    return layout if layout.pool_threads else replace(layout, io=f"pool:{IO_THREADS}")


def misplaced(directories: Mapping[str, Path]) -> list[str]:
    """All that keeps RabbitMQ's files from being placed like this; empty if nothing does."""
    unknown = sorted(set(directories) - set(ROLES))
    problems = [f"RabbitMQ has no role {role!r} (roles: {', '.join(ROLES)})" for role in unknown]
    if "classic" in directories and directories["classic"] != directories.get("data"):
        problems.append("RabbitMQ keeps classic queues with its other data: place classic and data on one drive")
    return problems


def _in_silence(_line: str) -> None:
    """Say nothing of the start."""


@contextlib.contextmanager
def running(
    parent: Path,
    nodes: int = 3,
    configuration: str = "",
    plugins: Sequence[str] = (),
    directories: Mapping[str, Path] | None = None,
    io_threads: int = 0,
    home: Path | None = None,
    tells_figures: bool = False,
    say: Callable[[str], None] = _in_silence,
) -> Iterator[RabbitMQ]:
    """Start a cluster with its data below ``parent``; stop the cluster and remove the data at the end.

    ``configuration`` is added to each node's ``rabbitmq.conf``, and must name the ports of the enabled ``plugins``.
    ``directories`` places :data:`ROLES` on drives. The cluster makes a directory of its own there, with one for each
    node, and removes it at the end. In a path, ``{node}`` stands for the name of a node (:func:`node_name`). A role
    without a directory lies below ``parent``. ``io_threads`` is the number of Erlang's dirty I/O schedulers, through
    which all file operations of a node go; 0: Erlang's default. ``home`` is that of another RabbitMQ than the installed
    one. ``tells_figures`` starts RabbitMQ's plugin for Prometheus on each node, which costs CPU time whenever it is
    asked. ``say`` gets a line when a node starts, runs or joins the others. Raises :class:`RabbitMQError` if RabbitMQ
    is not installed, cannot be placed so, or does not start.
    """
    if problems := misplaced(directories or {}):
        raise RabbitMQError("; ".join(problems), "directories", "place the roles as RabbitMQ can have them")
    require(home)
    directory = parent.absolute() / f".rabbitmq-{secrets.token_hex(4)}"
    cluster = _Cluster(
        directory, nodes, configuration, plugins, directories or {}, io_threads, home or LIBRARY, tells_figures
    )
    register = Register(parent)
    for made in cluster.made:
        register.note(UndoKind.DIRECTORY, str(made))
    register.note(UndoKind.PROCESSES, str(directory))
    try:
        yield cluster.start(say)
    finally:
        alive = cluster.stop()
        register.settle(UndoKind.PROCESSES, str(directory), is_gone=not alive)
        for made in cluster.made:
            shutil.rmtree(made, ignore_errors=True)
            register.settle(UndoKind.DIRECTORY, str(made), is_gone=not made.exists())
        if alive:
            fix = "its drive may hang: see what it waits for"
            raise RabbitMQError("a process of the RabbitMQ does not end", f"pid {alive[0].pid}", fix)


class _Cluster:
    def __init__(
        self,
        directory: Path,
        nodes: int,
        configuration: str,
        plugins: Sequence[str],
        directories: Mapping[str, Path],
        io_threads: int,
        home: Path = LIBRARY,
        tells_figures: bool = False,
    ) -> None:
        self._directory = directory
        self._scripts = scripts_in(home) or home
        self._io_threads = io_threads or IO_THREADS
        self._roots = {role: place.absolute() / directory.name[1:] for role, place in directories.items()}
        self._plugins = (*plugins, _METRICS_PLUGIN) if tells_figures else plugins
        self._configuration = f"loopback_users.guest = true\nlog.file.level = warning\n{configuration}"
        self._tag = secrets.token_hex(3)
        self._epmd_port, *ports = free_ports(1 + 3 * nodes)
        self._amqp_ports, self._distribution_ports = ports[:nodes], ports[nodes : 2 * nodes]
        self._metrics_ports = ports[2 * nodes :] if tells_figures else []
        self._nodes = range(nodes)
        self._children: list[subprocess.Popen[bytes]] = []
        self._servers: list[subprocess.Popen[bytes]] = []

    @property
    def made(self) -> list[Path]:
        """The directories of this cluster alone: its own, and those on drives."""
        return [self._directory, *sorted({place for node in self._nodes for place in self._places(node).values()})]

    def start(self, say: Callable[[str], None]) -> RabbitMQ:
        began = time.monotonic()

        def tell(node: int, what: str) -> None:
            say(f"node {node + 1} of {len(self._nodes)} {what} after {time.monotonic() - began:.1f} s")

        home = self._directory / "home"
        home.mkdir(parents=True, mode=0o700)
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16).upper())
        cookie.chmod(0o400)
        (self._directory / "no-env.conf").touch()
        (self._directory / "plugins").write_text(f"[{','.join(self._plugins)}].")
        for node in self._nodes:
            self._place(node)
        self._spawn(["epmd", "-address", HOST, "-port", str(self._epmd_port)], self._environment(), "epmd.log")
        for node in self._nodes:  # the first node first, because the other nodes join it
            self._servers.append(self._start_node(node))
            tell(node, "was started")
            self._await(node, self._servers[node])
            tell(node, "runs")
        for node in self._nodes[1:]:
            self._control(node, "stop_app")
            self._control(node, "join_cluster", self._name(0))
            self._control(node, "start_app")
            tell(node, "has joined the cluster")
        for node in self._nodes:
            self._control(node, "await_online_nodes", str(len(self._nodes)))
        return RabbitMQ(
            uris=tuple(f"amqp://guest:guest@{HOST}:{port}/%2f" for port in self._amqp_ports),
            pids=tuple(_emulator(server.pid) for server in self._servers),
            metrics=tuple(f"http://{HOST}:{port}/metrics" for port in self._metrics_ports),
            control=functools.partial(self._control, 0),
            kill=self.kill,
            restart=self.restart,
        )

    def kill(self) -> None:
        """End all nodes at once, as when the power fails. epmd goes on."""
        family = [process for server in self._servers for process in _family(server.pid)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=_STOP_TIMEOUT_S)
        for server in self._servers:
            server.wait()
            self._children.remove(server)
        self._servers.clear()

    def restart(self) -> None:
        """Start all nodes again; each waits for the others, so all begin before one is ready."""
        for node in self._nodes:
            (self._directory / f"node{node}.pid").unlink(missing_ok=True)
            self._servers.append(self._start_node(node))
        for node in self._nodes:
            self._await(node, self._servers[node])

    def _start_node(self, node: int) -> subprocess.Popen[bytes]:
        return self._spawn([str(self._scripts / "rabbitmq-server")], self._environment(node), f"node{node}.log")

    def stop(self) -> list[psutil.Process]:
        """End the started processes, the nodes before epmd; processes are found by pid and not by name. Gives those
        that did not end, not even at once."""
        stay = []
        for child in reversed(self._children):
            family = _family(child.pid)
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _gone, alive = psutil.wait_procs(family, timeout=_STOP_TIMEOUT_S)
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            stay += psutil.wait_procs(alive, timeout=_STOP_TIMEOUT_S)[1]
            child.poll()
        return stay

    def _place(self, node: int) -> None:
        """Make the directories of a node, and write its configuration."""
        ports = self._metrics_ports[node : node + 1]
        figures = "".join(f"prometheus.tcp.ip = {HOST}\nprometheus.tcp.port = {port}\n" for port in ports)
        (self._directory / f"node{node}.conf").write_text(self._configuration + figures)
        places = self._places(node)
        for place in places.values():
            (place / f"node{node}").mkdir(parents=True, exist_ok=True)
        wal = places.get("wal")
        text = "[]." if wal is None else f'[{{ra, [{{wal_data_dir, "{wal / f"node{node}" / "wal"}"}}]}}].'
        (self._directory / f"node{node}.config").write_text(text)

    def _places(self, node: int) -> dict[str, Path]:
        """The cluster's directory on the drive of each role of a node."""
        return {role: Path(str(place).replace(NODE, node_name(node))) for role, place in self._roots.items()}

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
            places = self._places(node)
            environment |= {
                "RABBITMQ_NODENAME": self._name(node),
                "RABBITMQ_NODE_IP_ADDRESS": HOST,
                "RABBITMQ_NODE_PORT": str(self._amqp_ports[node]),
                "RABBITMQ_DIST_PORT": str(self._distribution_ports[node]),
                "RABBITMQ_MNESIA_BASE": str(places.get("data", directory) / f"node{node}"),
                "RABBITMQ_LOG_BASE": str(places.get("logs", directory) / f"node{node}" / "log"),
                "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / f"node{node}.config"),
                "RABBITMQ_PID_FILE": str(directory / f"node{node}.pid"),
                "RABBITMQ_CONFIG_FILE": str(directory / f"node{node}.conf"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+SDio {self._io_threads} {_LOOPBACK_ONLY}",
            }
            if "segment" in places:
                environment["RABBITMQ_QUORUM_DIR"] = str(places["segment"] / f"node{node}" / "quorum")
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
        command = [str(self._scripts / "rabbitmqctl"), "-q", "-n", self._name(node), *arguments]
        try:
            done = subprocess.run(
                command, env=self._environment(), cwd=self._directory, capture_output=True, timeout=_START_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            what = f"rabbitmqctl {arguments[0]} did not end within {_START_TIMEOUT_S} s"
            raise RabbitMQError(what, self._name(node), "use a machine with more cores, or fewer nodes") from error
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
