"""A simulated run: production nodes and the production generator in one world, whose records a sink gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perftest.actions.cluster_actions import ClusterActions
from perftest.results.stages import StageCounts
from perftest.simulation.rabbitmq_nodes import RabbitNodes
from perftest.simulation.simulated_target import SimulatedTarget
from perftest.simulation.virtual_generator import EPOCH_NS, VirtualGenerator, free_of_charge
from perftest.spec.actions import Places
from perftest.spec.plan import Plan
from reference_broker.node.config import Limits
from reference_broker.storage.drives.model import InstanceCap
from reference_broker.storage.drives.profiles import PROFILES
from reference_broker.virtual.cluster import NodeSpec, VirtualCluster, start
from reference_broker.virtual.files import VirtualDrive
from reference_broker.virtual.loop import VirtualLoop
from reference_broker.virtual.network import OneWayLink, VirtualNetwork
from reference_broker.virtual.world import Machine, Process, VirtualWorld

if TYPE_CHECKING:
    from perftest.engine.api import RunOutcome, Sink, StopRequest
    from perftest.engine.coordination.warm_up import WarmUpRule
    from perftest.simulation.rabbitmq_calibration import RabbitCalibration
    from reference_broker.storage.drives.profiles import DriveProfile
    from reference_broker.virtual.costs import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The places of the nodes' files.

    ``drives`` gives the profile of each drive by name, and ``roles`` the drive of each role. ``pool`` is the number of
    I/O threads of a node; 0: a thread for each store. The nodes of one machine share its drives, unless each has
    ``own_drives``. ``octets_per_second`` is the bandwidth of these drives together; 0: no limit. ``layout`` is the
    layout file in a line of text, if the drives come from one, and ``title`` its title. ``credits`` is the part of
    their burst credits that drives have at the start, 0 to 1.
    """

    drives: dict[str, DriveProfile]
    roles: dict[str, str]
    pool: int = 0
    own_drives: bool = False
    octets_per_second: int = 0
    layout: str = ""
    title: str = ""
    credits: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The subject of a simulation. With ``shared`` all processes are on one machine of ``cores`` cores, else each node
    and the generator has a machine of its own. With ``rabbit`` the broker is the model of RabbitMQ."""

    nodes: int
    seed: int
    node_costs: Costs
    generator_costs: Costs
    placement: Placement
    within: OneWayLink
    between: OneWayLink
    cores: int
    shared: bool
    limits: Limits = field(default_factory=Limits)
    rabbit: RabbitCalibration | None = None


class Simulation:
    """One world. :meth:`run` may be called once; :meth:`end` must be called."""

    def __init__(self, setup: Setup) -> None:
        self.world = VirtualWorld(setup.seed)
        network = VirtualNetwork(self.world, setup.within, setup.between)
        machines = _machines(setup)
        self._costs = setup.generator_costs
        self.cluster = _cluster(setup, self.world, network, _nodes(setup, machines[:-1]))
        self._load_host = machines[-1]
        self._network = network
        self._command = self._loop(free_of_charge(self._costs), Machine("command", 1))
        self._generator = VirtualGenerator(
            self.world, self._command, lambda: self._loop(self._costs, self._load_host)
        )  # fmt: skip
        self._places = setup.placement.roles

    def run(
        self, plan: Plan, sink: Sink, stop: StopRequest, on_step: Callable[[], None], warm_up: WarmUpRule | None = None
    ) -> RunOutcome:
        """Start the cluster, execute the plan on it with its timeline, and undo the timeline's effects. ``warm_up`` may
        lengthen the warm-up of each step."""
        start(self.world, self.cluster, on_step)
        self._command.call_soon(lambda: None)
        actions = ClusterActions(plan, SimulatedTarget(self.cluster, self._places, self._command), sink.event)
        work = self._generator.execute(plan, sink, stop, Process(self._load_host, self._costs), actions, warm_up)
        outcome: RunOutcome = self._command.run_until_done(work, on_step)
        return outcome

    def samples(self) -> tuple[int, list[dict[str, Any]]]:
        """The Unix time, and what ``broker.jsonl`` says of each node that answers now."""
        t_ns = EPOCH_NS + self.world.clock()
        return t_ns, [{"t_ns": t_ns, **node.sample()} for node in self.cluster.nodes if node.answers]

    def stages(self) -> dict[str, StageCounts]:
        """The stages of the messages' time so far, by node, for each node that answers now."""
        found = [StageCounts.of(node.anatomy()) for node in self.cluster.nodes]
        return {counts.node: counts for counts in found if counts is not None}

    def facts(self) -> dict[str, Any]:
        """Usage so far: CPU seconds by process, syncs and octets by drive, virtual seconds."""
        nodes = {node.name: round(node.cpu_ns / 1e9, 3) for node in self.cluster.nodes}
        workers = {f"worker{index}": round(loop.process.cpu_ns / 1e9, 3)
                   for index, loop in enumerate(self._generator.loops)}  # fmt: skip
        return {"virtual_s": self.world.now / 1e9, "cpu_s": nodes | workers}

    def end(self) -> None:
        """End all threads and tasks."""
        for loop in (*self._generator.loops, self._command):
            loop.kill()
        self.cluster.end()

    def _loop(self, costs: Costs, machine: Machine) -> VirtualLoop:
        return VirtualLoop(self.world, Process(machine, costs), self._network)  # type: ignore[abstract]


def _cluster(
    setup: Setup, world: VirtualWorld, network: VirtualNetwork, specs: list[NodeSpec]
) -> VirtualCluster | RabbitNodes:
    if setup.rabbit is None:
        return VirtualCluster(world, network, specs)
    free = replace(free_of_charge(setup.generator_costs), wake_ns=0, hiccup_ns=0)
    machines, drives = [spec.machine for spec in specs], [spec.drives for spec in specs]
    return RabbitNodes(world, network, machines, setup.rabbit.costs, drives, free)


def places_of(setup: Setup) -> Places:
    """The places of actions: the nodes, and the drives that a node shares with no other node."""
    placement = setup.placement
    names = [f"node{number}" for number in range(1, setup.nodes + 1)]
    own = placement.own_drives or not setup.shared or setup.nodes == 1
    none = "" if own else "the nodes of one machine share its drives"
    return Places(names, list(placement.drives) if own else [], tuple(PROFILES), none)


def on_simulated(plan: Plan, cluster: VirtualCluster | RabbitNodes) -> Plan:
    """The plan with the URIs of the simulated cluster."""
    return plan.changed(uris=cluster.uris)


def _machines(setup: Setup) -> list[Machine]:
    """A machine for each node, and at last the generator's."""
    if setup.shared:
        return [Machine("local", setup.cores)] * (setup.nodes + 1)
    nodes = [Machine(f"host{number}", setup.cores) for number in range(1, setup.nodes + 1)]
    return [*nodes, Machine("load", setup.cores)]


def _nodes(setup: Setup, machines: list[Machine]) -> list[NodeSpec]:
    """The nodes, each with drives of its own or with its machine's drives."""
    placement = setup.placement
    of_machines = {machine.name: _drives(placement) for machine in machines}
    specs = []
    for machine in machines:
        drives = _drives(placement) if placement.own_drives else of_machines[machine.name]
        by_role = {role: drives[name] for role, name in placement.roles.items()}
        specs.append(
            NodeSpec(machine=machine, costs=setup.node_costs, drives=by_role, pool=placement.pool, limits=setup.limits)
        )
    return specs


def _drives(placement: Placement) -> dict[str, VirtualDrive]:
    """The drives of one node or machine, which share its bandwidth."""
    cap = InstanceCap(placement.octets_per_second) if placement.octets_per_second else None
    drives = {name: VirtualDrive(profile, cap) for name, profile in placement.drives.items()}
    if placement.credits < 1:
        for name, profile in placement.drives.items():
            drives[name].journal.drive.spend_credits(0, round(profile.credit_tokens * placement.credits))
    return drives
