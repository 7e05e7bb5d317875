// What an entry is called, and what an event is about: the messages of entries by their numbers, or else a word.
"use strict";

const COVERED_MOST = 64; // entries of one event that are looked at: the newest

const isRow = (messages) => messages.length > 2 && messages[messages.length - 1] - messages[0] === messages.length - 1;

// Messages by number: m1, m2 to m21, or the first of many.
function messageNames(messages) {
  if (messages.length < 3) return messages.map((each) => `m${each}`).join(", ");
  return isRow(messages) ? `m${messages[0]} to m${messages[messages.length - 1]}` : `m${messages[0]}, m${messages[1]} …`;
}

// The first word of an entry without messages: no-op, members, settle; n1 up, channel gone.
function wordOf(words) {
  const [first] = words.split(/[;(]/), state = first.match(/^(\S+) is (up|down|gone)$/);
  if (state) return `${state[1].includes("/") ? "channel" : state[1]} ${state[2]}`;
  return first.split(" ")[0].toLowerCase();
}

function nameOf(entry, place) {
  if (!entry) return `place ${place}`;
  return entry.messages.length ? messageNames(entry.messages) : wordOf(entry.words || "") || `place ${place}`;
}

// The entries of a member's log that an event reaches for the first time, as [first, last].
const REACHES = {
  append: (e) => [e.place, e.place], disk: (e, member) => [member.disk + 1, e.place], commit: (e, member) => [member.commit + 1, e.place],
  apply: (e, member) => [member.applied + 1, e.place],
  message: (e) => (e.kind === "AppendEntries" && e.ok ? [e.first, e.last] : (e.kind === "AppendReply" && e.ok) || e.kind === "LeaderSynced" ? [e.last, e.last] : null),
};

function namesOf(event, member) {
  const span = REACHES[event.what](event, member);
  if (!span) return "";
  const [first, last] = span, found = [];
  if (event.what === "append") return nameOf(event, last);
  for (let place = Math.max(first, last - COVERED_MOST + 1, 1); place <= last; place++) {
    const entry = ENTRIES.get(`${event.group} ${place} ${termAt(member, place)}`);
    if (entry) found.push(entry);
  }
  const messages = found.flatMap((each) => each.messages);
  return messages.length ? messageNames([...new Set(messages)].sort((one, other) => one - other)) : nameOf(found[found.length - 1], last);
}

// Each event gets the names of its entries, and a change of members is told from a change of roles.
(function nameEvents() {
  const state = { members: {}, hosts: {} };
  for (const event of events) {
    const member = state.members[`${event.at} ${event.group}`];
    if (member && event.what === "role") event.isOfMembers = member.role === event.role && member.term === event.term && member.leader === event.leader;
    if (member && REACHES[event.what]) event.names = namesOf(event, member);
    take(state, event);
  }
})();
