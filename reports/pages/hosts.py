"""The part of the page about the hosts of a run: all together, each by itself, and what lies between them.

A run on one host has no such part. Percentiles of all hosts come from histograms that were added up, and never from
percentiles of hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from perftest.results.bottleneck import Bottleneck
from perftest.results.hosts import BROKER, LOAD, START_SKEW_MAX_NS
from reports.charts import bars, dots, lanes
from reports.pages import replication, settings, words
from reports.pages.link_traffic import links_chart
from reports.pages.model import Chart, Column, DrawnHost, Hosts, Kind, Sentence, Table
from reports.pages.tables import latency_column, table_of
from reports.stats.bottleneck import bottlenecks
from reports.store.tables import Tables

PANELS_MAX: Final = 3
"""Number of steps in a figure with a row per host: the first, that with the highest rate, the last."""
ALL: Final = "all hosts"
OUTLIER: Final = 1.5
"""Factor by which the p99 of a host, or its share, must differ from the median of the hosts to be named."""
MISSING_EVENTS: Final = ("host_lost", "worker_late", "worker_lost", "clock_changed")
ELECTIONS_MAX: Final = 20
"""The most changes of role that are told one by one; the table of nodes counts all."""
_MICROSECOND: Final = 1_000


def hosts_section(tables: Tables, *, prefix: str) -> Hosts | None:
    """The part for the one run that ``tables`` hold; None for a run on one host."""
    if len(tables.hosts) < 2:
        return None
    run = tables.runs.iloc[0]
    steps = _measured(tables)
    limits = bottlenecks(tables)
    loads = sum(LOAD in _roles(host) for _, host in tables.hosts.iterrows())
    brokers = sum(BROKER in _roles(host) for _, host in tables.hosts.iterrows())
    trips = _measured_trips(_manifest(tables))
    members = replication.members(tables.brokers)
    elected_s = sorted(set(_role_changes(tables)["t_s"].head(ELECTIONS_MAX)))
    even = _even(tables, steps, prefix)
    counted = [words.plural(loads, "load host")] + ([words.plural(brokers, "broker host")] if brokers else [])
    return Hosts(
        prefix=prefix,
        title=f"Hosts of {settings.title(run)}",
        subtitle=", ".join(counted),
        even=even,
        sentences=tuple(_sentences(tables, steps, limits, even, prefix)),
        drawn=tuple(_drawn(tables)),
        facts=_facts(tables.hosts),
        round_trips=_round_trips(trips),
        round_trips_text=tuple(_round_trips_text(trips)),
        limits=_limits(limits),
        each=tuple(_each(tables, steps, prefix)),
        clocks=tuple(_clock_charts(tables, prefix)),
        clock_facts=_clock_facts(tables.hosts),
        saturation=tuple(_saturation(tables, prefix)),
        nodes=_nodes(tables),
        elections=tuple(_elections(tables)),
        leaders=replication.leaders(members),
        nodes_time=(
            *replication.over_time(members, tables, elected_s, prefix),
            *_nodes_time(tables, elected_s, prefix),
        ),
        links=tuple(_links(tables, prefix)),
        links_missing=_links_missing(tables),
        skew=_skew(tables.hosts),
        skew_text=_skew_text(tables.hosts),
        missing=tuple(_missing(tables)),
    )


def _roles(host: pd.Series[Any]) -> tuple[str, ...]:
    return tuple(str(host["roles"] or LOAD).split(", "))


def _measured(tables: Tables) -> pd.DataFrame:
    """The measured steps that have steady time."""
    beside = {group for _, group in tables.background_loads}
    steps = tables.steps
    return steps[~steps["group"].isin(beside) & (steps["length_s"] > 0)].reset_index(drop=True)


# Sentences


def _even(tables: Tables, steps: pd.DataFrame, prefix: str) -> Sentence:
    """How many hosts made the load, what each of them sent at the highest rate, and how well their clocks agree."""
    best = steps.iloc[int(steps["delivered_per_s"].argmax())] if len(steps) else None
    rows = _load_rows(tables)
    mine = rows.iloc[:0] if best is None else rows[(rows["step"] == best["step"]) & (rows["group"] == best["group"])]
    parts = mine["published_part"].dropna()
    text = f"{words.plural(sum(LOAD in _roles(host) for _, host in tables.hosts.iterrows()), 'host')} made the load"
    if len(parts) and best is not None:
        low, high = words.share(float(parts.min())), words.share(float(parts.max()))
        each = f"{low} of it each" if low == high else f"from {low} to {high} of it each"
        text += f" and sent {each} ({best['label'] or settings.WHOLE})"
    return Sentence(text=f"{text}; {_clocks_agree(tables)}.", anchor=f"{prefix}each", see="each host")


def _clocks_agree(tables: Tables) -> str:
    bound_ns = float(tables.hosts["clock_bound_ns"].max())
    return f"their clocks are known to ± {words.latency(bound_ns)}" if bound_ns > 0 else "one clock took every time"


def _sentences(
    tables: Tables, steps: pd.DataFrame, limits: Sequence[Bottleneck], even: Sentence, prefix: str
) -> Iterator[Sentence]:
    if len(steps):
        best = steps.iloc[int(steps["delivered_per_s"].argmax())]
        most = words.rate(float(best["delivered_per_s"]))
        text = f"All hosts together delivered at most {most} ({best['label']})"
        p99_ns = best[f"{best['e2e_series']}_p99_ns"]
        text += f", with an end-to-end p99 of {words.latency(float(p99_ns))}." if pd.notna(p99_ns) else "."
        yield Sentence(text=text, anchor=f"{prefix}each", see="each host")
        yield even
        limit = next((one for one in limits if (one.step, one.group) == (best["step"], best["group"])), None)
        if limit is not None:
            yield Sentence(text=f"There the run {_was(limit)}.", anchor=f"{prefix}limits", see="every step")
    yield from _outliers(tables, steps, prefix)
    bound_ns = float(tables.hosts["clock_bound_ns"].max())
    if bound_ns:
        text = (
            f"The clocks of the hosts are known to ± {words.latency(bound_ns)}: end-to-end latencies between two hosts "
        )
        yield Sentence(text=f"{text}that are shorter say nothing.", anchor=f"{prefix}clocks", see="clocks")
    lost = tables.hosts[tables.hosts["lost_reason"].notna()]
    for _, host in lost.iterrows():
        yield Sentence(text=_lost(host), anchor=f"{prefix}missing", see="what is missing")


def _was(limit: Bottleneck) -> str:
    return f"was {limit.limit}: {limit.why}" if not limit.limit.startswith("kept") else f"{limit.limit}: {limit.why}"


def _lost(host: pd.Series[Any]) -> str:
    when = f" after {words.duration(float(host['lost_s']))}" if pd.notna(host["lost_s"]) else ""
    return f"{host['host']} was lost{when}: {host['lost_reason']}."


def _outliers(tables: Tables, steps: pd.DataFrame, prefix: str) -> Iterator[Sentence]:
    """Hosts whose p99 or share is unlike the others', in the last step that they differ in."""
    found: dict[str, str] = {}
    for rows, _, title in _by_step(tables, steps):
        if len(rows) < 3:
            continue
        for word, column, say in (("end-to-end p99", "p99_ns", words.latency), ("rate", "delivered_per_s", words.rate)):
            values = rows.set_index("host")[column].dropna()
            middle = float(values.median()) if len(values) else 0.0
            for host, value in values.items():
                if middle > 0 and not middle / OUTLIER <= value <= middle * OUTLIER:
                    is_expected = word == "rate" and value == 0
                    if not is_expected:
                        found[f"{host} {word}"] = (
                            f"{host} differs from the other hosts: its {word} was {say(float(value))} where the median "
                            f"of the hosts was {say(middle)} ({title})."
                        )
    for text in found.values():
        yield Sentence(text=text, anchor=f"{prefix}each", see="each host")
    if not found and len(_load_rows(tables)):
        yield Sentence(text="No load host differs much from the others.", anchor=f"{prefix}each", see="each host")


# Topology


def _drawn(tables: Tables) -> Iterator[DrawnHost]:
    places = _node_places(tables)
    leading = set(tables.brokers.loc[tables.brokers["role"] == "leader", "node"])
    for _, host in tables.hosts.iterrows():
        nodes = [node for node, place in places.items() if place == host["host"]]
        parts = [f"{node} (leader)" if node in leading else node for node in nodes]
        parts = (["load workers"] if LOAD in _roles(host) else []) + parts
        trip = host["round_trip_ns"]
        about = [str(host["address"])] if host["address"] else []
        about += [f"{words.latency(float(trip))} away"] if pd.notna(trip) else []
        yield DrawnHost(
            name=str(host["host"]),
            what=", ".join(about) or "the coordinator's host",
            parts=tuple(parts),
            is_lost=pd.notna(host["lost_reason"]),
        )


def _node_places(tables: Tables) -> dict[str, str]:
    """The host of each node, by the samples, or else by the manifest."""
    known = {
        str(node.get("name")): str(node.get("host"))
        for node in (_manifest(tables).get("broker") or {}).get("nodes") or ()
        if isinstance(node, dict) and node.get("host")
    }
    sampled = tables.brokers.dropna(subset=["host"]).drop_duplicates("node")
    return known | dict(zip(sampled["node"].map(str), sampled["host"].map(str), strict=True))


def _manifest(tables: Tables) -> dict[str, Any]:
    """The manifest of the run; empty for a run without one that can be read."""
    found = json.loads(str(tables.runs.iloc[0]["manifest"]) or "{}")
    return found if isinstance(found, dict) else {}


def _facts(hosts: pd.DataFrame) -> Table:
    columns = (
        Column(name="host", title="host"),
        Column(name="roles", title="roles"),
        Column(name="address", title="address"),
        Column(name="cores", title="cores", kind=Kind.COUNT),
        Column(name="cpu", title="processor"),
        Column(name="memory_gib", title="memory", kind=Kind.NUMBER, unit="GiB"),
        Column(name="kernel", title="kernel"),
        Column(name="filesystem", title="file system"),
        Column(name="python", title="Python"),
        Column(name="tool_version", title="tool"),
        latency_column("round_trip_ns", "round trip"),
    )
    frame = hosts.assign(memory_gib=hosts["memory_bytes"] / 2**30)
    texts = ("address", "python", "tool_version")
    frame = frame.assign(**{name: frame[name].fillna("") for name in texts})
    return table_of(frame, columns, caption="The hosts", file="hosts.csv")


def _measured_trips(manifest: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each load host and node: ``host``, ``node``, ``address``, ``trip_ns`` (NaN: not reached), ``reason``. A
    run of an earlier version has no rows."""
    rows = [
        {
            "host": str(host.get("name")),
            "node": str(trip.get("node")),
            "address": str(trip.get("address")),
            "trip_ns": trip.get("round_trip_ns"),
            "reason": str(trip.get("reason") or ""),
        }
        for host in manifest.get("hosts") or ()
        for trip in host.get("round_trips") or ()
    ]
    names = ("host", "node", "address", "trip_ns", "reason")
    return pd.DataFrame(rows, columns=list(names)).astype({"trip_ns": "float64"}).drop_duplicates(["host", "node"])


def _round_trips(trips: pd.DataFrame) -> Table | None:
    """The matrix of load hosts (rows) and nodes (columns)."""
    if trips.empty:
        return None
    addresses = dict(zip(trips["node"], trips["address"], strict=True))
    nodes = list(addresses)
    frame = trips.pivot(index="host", columns="node", values="trip_ns").reindex(trips["host"].unique())[nodes]
    frame = frame.set_axis(range(len(nodes)), axis="columns").reset_index()
    frame.columns = frame.columns.map(str)
    titles = [node if addresses[node] == node else f"{node} ({addresses[node]})" for node in nodes]
    columns = (
        Column(name="host", title="from host"),
        *(latency_column(str(at), title) for at, title in enumerate(titles)),
    )
    return table_of(frame, columns, caption="Round trips from load hosts to nodes", file="round-trips.csv")


def _round_trips_text(trips: pd.DataFrame) -> Iterator[Sentence]:
    """The ends of the range, and what was not reached."""
    reached = trips.dropna(subset=["trip_ns"])
    if len(reached) > 1:
        low, high = (reached.iloc[int(at)] for at in (reached["trip_ns"].argmin(), reached["trip_ns"].argmax()))
        least, most = (f"{words.latency(float(row['trip_ns']))} ({_way(row)})" for row in (low, high))
        yield Sentence(text=f"The round trips lie between {least} and {most}.")
    for _, row in trips[trips["trip_ns"].isna()].iterrows():
        yield Sentence(text=f"{row['host']} did not reach {row['node']} before the load began: {row['reason']}.")


def _way(trip: pd.Series[Any]) -> str:
    return f"{trip['host']} to {trip['node']}"


def _limits(limits: Sequence[Bottleneck]) -> Table:
    rows = tuple((one.label, str(one.limit), ", ".join(one.hosts) or "–", one.why) for one in limits)
    names = (("step", "step"), ("limit", "verdict"), ("hosts", "hosts"), ("why", "why"))
    columns = tuple(Column(name=name, title=title) for name, title in names)
    return Table(caption="What set the rate of each step", file="limits.csv", columns=columns, rows=rows)


# Each host


def _load_rows(tables: Tables) -> pd.DataFrame:
    """Rows of hosts with clients, with ``p99_ns`` of the end-to-end series to lead with."""
    series = tables.steps.set_index(["step", "group"])["e2e_series"]
    rows = tables.host_steps[tables.host_steps["workers"] > 0]
    led = [series.get((step, group), "e2e") for step, group in zip(rows["step"], rows["group"], strict=True)]
    p99_ns = [row[f"{name}_p99_ns"] for (_, row), name in zip(rows.iterrows(), led, strict=True)]
    return rows.assign(p99_ns=pd.Series(p99_ns, index=rows.index, dtype="float64"))


def _by_step(tables: Tables, steps: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.Series[Any], str]]:
    """The rows of each measured step's load hosts, the step, and its title."""
    rows = _load_rows(tables)
    for _, step in steps.iterrows():
        mine = rows[(rows["step"] == step["step"]) & (rows["group"] == step["group"])]
        title = ", ".join(filter(None, (str(step["group"]), str(step["label"]))))
        if len(mine):
            yield mine, step, title


def _shown(steps: pd.DataFrame) -> pd.DataFrame:
    if len(steps) <= PANELS_MAX:
        return steps
    return steps.iloc[sorted({0, int(steps["delivered_per_s"].argmax()), len(steps) - 1})]


def _each(tables: Tables, steps: pd.DataFrame, prefix: str) -> Iterator[Chart]:
    drawn, few = list(_by_step(tables, _shown(steps))), len(steps) > PANELS_MAX
    if not drawn:
        return
    which = " Of many steps it shows the first, that with the highest rate, and the last." if few else ""
    rates = pd.concat([rows.assign(panel=title, value=rows["delivered_per_s"]) for rows, _, title in drawn])
    yield _bars(rates, "rate", "Delivered rate of each host", "msg/s", which, prefix)
    tails = pd.concat([_with_all(rows, step, title) for rows, step, title in drawn])
    if tails["value"].notna().any():
        yield _bars(tails, "p99", "End-to-end p99 of each host", "ms", which, prefix)
    yield _share_dots(drawn, which, prefix)


def _with_all(rows: pd.DataFrame, step: pd.Series[Any], title: str) -> pd.DataFrame:
    whole = {"host": ALL, "p99_ns": step[f"{step['e2e_series']}_p99_ns"]}
    both = pd.concat([pd.DataFrame([whole]), rows[["host", "p99_ns"]]], ignore_index=True)
    return both.assign(panel=title, value=both["p99_ns"])


def _bars(rows: pd.DataFrame, name: str, title: str, unit: str, which: str, prefix: str) -> Chart:
    is_latency = name == "p99"
    frame = rows.assign(row=rows["host"], part="").dropna(subset=["value"]).reset_index(drop=True)
    value = latency_column("value", "p99") if is_latency else Column(name="value", title="delivered", kind=Kind.RATE)
    columns = (Column(name="panel", title="step"), Column(name="row", title="host"), value)
    merged = f"The bar “{ALL}” is from the histograms of all hosts added up; it is no mean of the other bars." + which
    how = "Each panel is a step; its bars are the load hosts, over one axis for all panels. "
    return Chart(
        anchor=f"{prefix}each-{name}",
        title=title,
        unit=unit,
        latency=is_latency,
        how_to_read=how + (merged if is_latency else f"The rates of the hosts add up to that of the run.{which}"),
        finding="",
        figure=bars.figure(frame, quantity=title if is_latency else f"{title} ({unit})", latency=is_latency),
        table=table_of(frame, columns, caption=title, file=f"each-{name}.csv"),
    )


def _share_dots(drawn: Sequence[tuple[pd.DataFrame, pd.Series[Any], str]], which: str, prefix: str) -> Chart:
    parts = pd.concat(
        [rows.assign(series=title, row=rows["host"], value=rows["published_part"]) for rows, _, title in drawn]
    )
    if not parts["value"].notna().any():
        parts = parts.assign(value=parts["delivered_part"])
    parts = parts.dropna(subset=["value"]).sort_values(["series", "row"], kind="stable")
    count = int(parts["row"].nunique()) or 1
    columns = (
        Column(name="series", title="step"),
        Column(name="row", title="host"),
        Column(name="published_part", title="of published", kind=Kind.NUMBER),
        Column(name="delivered_part", title="of delivered", kind=Kind.NUMBER),
    )
    low, high = float(parts["value"].min()), float(parts["value"].max())
    return Chart(
        anchor=f"{prefix}each-share",
        title="Share of each host in what was published",
        unit="",
        how_to_read="Each dot is a step. On the dashed line each host has the same part. Where the plan gives hosts "
        f"different numbers of clients, their shares differ, too.{which}",
        finding=f"The shares lie between {words.share(low)} and {words.share(high)}.",
        figure=dots.figure(parts, quantity="part of all published messages", expected=1 / count),
        table=table_of(parts, columns, caption="Share of each host (0..1)", file="each-share.csv"),
    )


# Clocks


def _clock_charts(tables: Tables, prefix: str) -> Iterator[Chart]:
    models = tables.clocks[tables.clocks["kind"] == "model"]
    if models.empty:
        return
    least = models.groupby("host")["offset_ns"].transform("median")
    frame = lanes.thinned(models.assign(name=models["host"], moved=(models["offset_ns"] - least) / _MICROSECOND))
    drawn = {
        "offset, less its median (µs)": frame.assign(value=frame["moved"]),
        "bound (± µs)": frame.assign(value=frame["bound_ns"] / _MICROSECOND),
    }
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="host", title="host"),
        latency_column("offset_ns", "offset"),
        latency_column("bound_ns", "bound"),
    )
    worst = models.iloc[int(models["bound_ns"].argmax())]
    yield Chart(
        anchor=f"{prefix}clocks-time",
        title="Clocks of the hosts over time",
        unit="µs",
        how_to_read="The upper lane shows how the clock of each host moved against the coordinator's clock; a slope is "
        "a clock that runs faster or slower, which is corrected. The lower lane shows how far the truth may be away.",
        finding=f"The greatest bound is ± {words.latency(float(worst['bound_ns']))}, of {worst['host']}.",
        figure=lanes.figure(drawn, floating=("offset, less its median (µs)",)),
        table=table_of(frame, columns, caption="Clocks over time", file="clocks.csv"),
    )


def _clock_facts(hosts: pd.DataFrame) -> Table:
    columns = (
        Column(name="host", title="host"),
        latency_column("clock_offset_ns", "offset"),
        latency_column("clock_bound_ns", "bound"),
        Column(name="clock_drift_ppm", title="drift", kind=Kind.NUMBER, unit="ppm"),
        latency_column("round_trip_ns", "least round trip"),
        Column(name="clock", title="clock"),
    )
    return table_of(hosts, columns, caption="Clocks of the hosts", file="host-clocks.csv")


# Saturation


def _saturation(tables: Tables, prefix: str) -> Iterator[Chart]:
    samples = tables.host_samples.assign(name=tables.host_samples["host"])
    if samples.empty:
        return
    frame = lanes.thinned(
        samples.assign(
            network=samples[["rx_bytes_per_s", "tx_bytes_per_s"]].max(axis=1) * 8,
            drives=samples["disk_read_bytes_per_s"] + samples["disk_write_bytes_per_s"],
        )
    )
    cpu, network, drives = "CPU (% of all cores)", "network (bit/s)", "drives (B/s)"
    drawn = {
        title: frame.assign(value=frame[column]).dropna(subset=["value"])
        for title, column in ((cpu, "cpu_percent"), (network, "network"), (drives, "drives"))
    }
    speeds = tables.hosts["link_bits_per_s"].dropna()
    limits = {cpu: 100.0} | ({network: float(speeds.min())} if len(speeds) else {})
    busiest = frame.iloc[int(frame["cpu_percent"].fillna(0.0).argmax())]
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="host", title="host"),
        Column(name="cpu_percent", title="CPU", kind=Kind.NUMBER, unit="%"),
        Column(name="network", title="network", kind=Kind.RATE, unit="bit/s"),
        Column(name="drives", title="drives", kind=Kind.RATE, unit="B/s"),
        Column(name="steal_percent", title="steal", kind=Kind.NUMBER, unit="%"),
    )
    known = f"the speed of {len(speeds)} of {len(tables.hosts)} networks is known, and the line is that of the slowest"
    unknown = "the speed of no network is known"
    yield Chart(
        anchor=f"{prefix}saturation-time",
        title="How busy each host was",
        unit="",
        how_to_read="Each line is a host. A host at the dashed line has nothing left. Where there is no such line, all "
        f"hosts are far below the limit, or it is not known: {known if len(speeds) else unknown}. Nor is known what "
        "drives can do. The network lane has the busier of the two directions.",
        finding=""
        if pd.isna(busiest["cpu_percent"])
        else f"The busiest sample is of {busiest['host']}: {busiest['cpu_percent']:.0f} % of its processors, at "
        f"{busiest['t_s']:.0f} s.",
        figure=lanes.figure(drawn, limits=limits),
        table=table_of(frame, columns, caption="How busy each host was", file="host-samples.csv"),
    )


# Replication and leaders


def _nodes(tables: Tables) -> Table | None:
    if tables.brokers.empty:
        return None
    places = _node_places(tables)
    rows = []
    for node, samples in tables.brokers.groupby("node"):
        told = samples[samples["role"] != ""]["role"]
        rows.append(
            {
                "node": node,
                "host": places.get(str(node), ""),
                "first": told.iloc[0] if len(told) else "",
                "last": told.iloc[-1] if len(told) else "",
                "changes": int((told != told.shift()).sum()) - 1 if len(told) else 0,
                "starts": int(samples["pid"].nunique()),
                "cpu": samples["cpu_share"].mean(),
                "syncs": samples["wal_syncs_per_s"].mean(),
                "octets": samples["wal_bytes_per_s"].mean() / 1e6,
            }
        )
    columns = (
        Column(name="node", title="node"),
        Column(name="host", title="host"),
        Column(name="first", title="role first"),
        Column(name="last", title="role last"),
        Column(name="changes", title="changes of role", kind=Kind.COUNT),
        Column(name="starts", title="processes seen", kind=Kind.COUNT),
        Column(name="cpu", title="CPU", kind=Kind.NUMBER, unit="cores"),
        Column(name="syncs", title="WAL syncs", kind=Kind.RATE, unit="1/s"),
        Column(name="octets", title="WAL", kind=Kind.NUMBER, unit="MB/s"),
    )
    return table_of(pd.DataFrame(rows), columns, caption="The nodes, over the whole run", file="nodes.csv")


def _role_changes(tables: Tables) -> pd.DataFrame:
    """Samples at which a node told another role than before, with the column ``before``, by time."""
    told = tables.brokers[tables.brokers["role"] != ""].sort_values("t_s", kind="stable")
    before = told.groupby("node")["role"].shift()
    return told.assign(before=before)[before.notna() & (before != told["role"])]


def _elections(tables: Tables) -> Iterator[Sentence]:
    changes = _role_changes(tables)
    for _, change in changes.head(ELECTIONS_MAX).iterrows():
        text = f"At {change['t_s']:.1f} s {change['node']} was {change['role']} (before: {change['before']})."
        yield Sentence(text=text)
    if len(changes) > ELECTIONS_MAX:
        yield Sentence(text=f"There were {len(changes) - ELECTIONS_MAX} more changes of role after these.")


def _nodes_time(tables: Tables, elected_s: Sequence[float], prefix: str) -> Iterator[Chart]:
    """The figures of each node over time, with a mark where a node changed its role."""
    lanes_of = {"CPU (cores)": "cpu_share", "WAL syncs (1/s)": "wal_syncs_per_s", "WAL (B/s)": "wal_bytes_per_s"}
    frame = tables.brokers.assign(name=tables.brokers["node"]).dropna(subset=["length_s"])
    drawn = {title: column for title, column in lanes_of.items() if frame[column].notna().any()}
    if not drawn:
        return
    frame = lanes.thinned(frame)
    changes = _role_changes(tables)
    columns = (
        Column(name="t_s", title="time", kind=Kind.NUMBER, unit="s"),
        Column(name="node", title="node"),
        Column(name="role", title="role"),
        Column(name="cpu_share", title="CPU", kind=Kind.NUMBER, unit="cores"),
        Column(name="wal_syncs_per_s", title="WAL syncs", kind=Kind.RATE, unit="1/s"),
        Column(name="wal_bytes_per_s", title="WAL", kind=Kind.RATE, unit="B/s"),
    )
    yield Chart(
        anchor=f"{prefix}replication-time",
        title="What each node did over time",
        unit="",
        how_to_read="Each line is a node. A dotted line through all lanes is the first sample after a node changed its "
        "role, so the change was shortly before.",
        finding=f"There was {words.plural(len(changes), 'change')} of role."
        if len(changes) == 1
        else f"There were {words.plural(len(changes), 'change')} of role.",
        figure=lanes.figure(
            {title: frame.assign(value=frame[column]).dropna(subset=["value"]) for title, column in drawn.items()},
            marks=elected_s,
        ),
        table=table_of(frame, columns, caption="Nodes over time", file="node-samples.csv"),
    )


def _links_missing(tables: Tables) -> str:
    """Why there is no figure of links: what follows from the tables, and no guess beyond."""
    if tables.links.empty:
        return (
            "Octets per link are missing: no sample of a node told what it sent to the others. They are read "
            "from the control ports of the bundled broker's nodes, and not from metrics over HTTP or other brokers."
        )
    return "Octets per link are missing: in the steps shown, no node sent anything to another."


def _links(tables: Tables, prefix: str) -> Iterator[Chart]:
    chart = links_chart(tables.links, _shown(_measured(tables).drop_duplicates("step")), anchor=f"{prefix}links-octets")
    if chart is not None:
        yield chart


# Start, stop, and what is missing


def _skew(hosts: pd.DataFrame) -> Table | None:
    if not hosts[["start_skew_ns", "stop_skew_ns"]].notna().any().any():
        return None
    columns = (
        Column(name="host", title="host"),
        latency_column("start_skew_ns", "began after the set moment"),
        latency_column("stop_skew_ns", "ended after the set moment"),
    )
    return table_of(hosts, columns, caption="Start and stop", file="skew.csv")


def _skew_text(hosts: pd.DataFrame) -> str:
    """The distance between the hosts' begins, in words."""
    began = hosts["start_skew_ns"].dropna()
    if began.empty:
        return "When the hosts began is not known."
    apart_ns = float(began.max() - min(began.min(), 0))
    verdict = "within" if apart_ns <= START_SKEW_MAX_NS else "more than"
    text = f"The hosts began within {words.latency(apart_ns)} of each other"
    return f"{text}, which is {verdict} the {words.latency(START_SKEW_MAX_NS)} that are allowed."


def _missing(tables: Tables) -> Iterator[Sentence]:
    for _, host in tables.hosts[tables.hosts["lost_reason"].notna()].iterrows():
        done = tables.intervals[tables.intervals["host"] == host["host"]]
        text = _lost(host)
        if len(done):
            last_s = float((done["t_s"] + done["length_ns"] / 1e9).max())
            text += f" Its records until {words.duration(last_s)} after the start are in all figures."
        yield Sentence(text=text)
    for _, event in tables.events[tables.events["kind"].isin(MISSING_EVENTS)].iterrows():
        said = str(event["text"]) or str(event["kind"]).replace("_", " ")
        yield Sentence(text=f"At {float(event['t_s']):.1f} s: {said}.")
    silent = sorted(
        str(host["host"])
        for _, host in tables.hosts.iterrows()
        if LOAD in _roles(host) and host["host"] not in set(tables.intervals["host"]) and len(tables.intervals)
    )
    for name in silent:
        yield Sentence(text=f"{name} was to make load, and there is no record of any.")
