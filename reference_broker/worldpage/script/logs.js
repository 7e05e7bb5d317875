// Where each member stands after an event. members.py folds the same way, and a test compares the two.
"use strict";

const CHECKPOINT = 400;
const checkpoints = [{ members: {}, hosts: {} }];

function copyOf(state) {
  const members = {}, hosts = {};
  for (const [key, member] of Object.entries(state.members)) members[key] = { ...member, runs: member.runs.map((run) => [...run]) };
  for (const [at, host] of Object.entries(state.hosts)) hosts[at] = { ...host, cut: [...host.cut] };
  return { members, hosts };
}

function termAt(member, index) {
  if (index <= member.snapshot || index > member.last) return 0;
  let term = 0;
  for (const run of member.runs) if (run[0] <= index) term = run[1];
  return term;
}

function drop(member, index) {
  member.last = Math.min(member.last, index - 1);
  member.disk = Math.min(member.disk, index - 1);
  member.runs = member.runs.filter((run) => run[0] < index);
}

function compact(member, index) {
  if (index <= member.snapshot) return;
  member.snapshot = index;
  member.disk = Math.max(member.disk, index);
  member.last = Math.max(member.last, index);
  const ends = member.runs.map((_, place) => (place + 1 < member.runs.length ? member.runs[place + 1][0] - 1 : member.last));
  member.runs = member.runs.filter((_, place) => ends[place] > index).map(([first, term]) => [Math.max(first, index + 1), term]);
}

const CHANGES = {
  role: (member, { role, leader, term, members }) => Object.assign(member, { role, leader, term, members: members || member.members }),
  append: (member, { place, term }) => {
    if (place <= member.last) drop(member, place);
    if (!member.runs.length || member.runs[member.runs.length - 1][1] !== term) member.runs.push([place, term]);
    member.last = place;
  },
  drop: (member, { place }) => drop(member, place),
  disk: (member, { place, term }) => { if (termAt(member, place) === term) member.disk = Math.max(member.disk, place); },
  reset: (member, { place }) => Object.assign(member, { runs: [], snapshot: place, disk: place, last: place }),
  snapshot: (member, { place }) => compact(member, place),
  install: (member, { place, term }) => { if (termAt(member, place) === term) compact(member, place); },
  commit: (member, { place }) => { member.commit = Math.max(member.commit, place); },
  apply: (member, { place }) => { member.applied = Math.max(member.applied, place); },
  take: (member, { place }) => { member.applied = Math.max(member.applied, place); },
};

function take(state, event) {
  const { members, hosts } = state, { at, what } = event, key = `${at} ${event.group}`;
  if (at && !hosts[at]) hosts[at] = { up: true, until: 0, cut: [] };
  if (what === "start") {
    for (const each of Object.keys(members)) if (each.startsWith(`${at} `)) delete members[each];
    Object.assign(hosts[at], { up: true, until: 0 });
  } else if (what === "kill" || what === "power") {
    for (const each of Object.keys(members)) if (each.startsWith(`${at} `)) members[each].isUp = false;
    hosts[at].up = false;
  } else if (what === "pause") hosts[at].until = event.until;
  else if (what === "cut") hosts[at].cut.push(event.to);
  else if (what === "free") hosts[at].cut = hosts[at].cut.filter((to) => to !== event.to);
  else if (what === "member") {
    const numbers = Object.fromEntries(["term", "snapshot", "last", "disk", "commit", "applied"].map((name) => [name, event[name] || 0]));
    const runs = (event.log || []).map((run) => [...run]);
    members[key] = { role: event.role || "follower", leader: event.leader || "", members: event.members || "", ...numbers, runs, isUp: true };
    if (!event.log) members[key].isUnknown = true; // a log of a node tells roles, and nothing of entries
  } else if (what === "leave") delete members[key];
  else if (CHANGES[what] && members[key]) CHANGES[what](members[key], event);
}

function stateAfter(index) {
  const wanted = Math.floor((index + 1) / CHECKPOINT);
  while (checkpoints.length <= wanted) {
    const from = (checkpoints.length - 1) * CHECKPOINT, state = copyOf(checkpoints[checkpoints.length - 1]);
    for (let each = from; each < from + CHECKPOINT; each++) take(state, events[each]);
    checkpoints.push(state);
  }
  const state = copyOf(checkpoints[wanted]);
  for (let each = wanted * CHECKPOINT; each <= index; each++) take(state, events[each]);
  return state;
}
