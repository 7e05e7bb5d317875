// The events of the page, unpacked: `index` is the number of an event in the page, and `place` the index of an entry in
// its log.
"use strict";

const byId = (id) => document.getElementById(id);
const root = document.documentElement;
const packed = JSON.parse(byId("world").textContent);
const SECOND = 1e6; // times are whole microseconds
const KINDS = packed.kinds.map(([what, ...fields]) => [what, fields]);

function unpack() {
  let t = 0;
  return packed.events.map(([later, at, kind, ...values], index) => {
    t += later;
    const [what, fields] = KINDS[kind], event = { index, t, at: packed.texts[at], what };
    fields.forEach((field, place) => {
      const value = values[place], name = field.replace(/^[$@]/, "");
      event[name === "index" ? "place" : name] = field[0] === "$" && value !== null ? packed.texts[value] : value;
    });
    return event;
  });
}

const events = unpack();
const head = events.find((each) => each.what === "world") || { total: events.length };
const isClient = (at) => /^[cp]\d+$/.test(at);
const hosts = [...new Set(events.map((each) => each.at))].filter(Boolean)
  .sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
const CLIENTS = " clients"; // the lane of all clients
const nodes = hosts.filter((at) => !isClient(at)), HAS_CLIENTS = hosts.some(isClient);
const plainName = (group) => (group || "").replace(/~\d+$/, "");
const ENTRIES = new Map(); // "group place term" -> the first append of that entry
for (const each of events) {
  const key = `${each.group} ${each.place} ${each.term}`;
  if (each.what === "append" && !ENTRIES.has(key)) ENTRIES.set(key, each);
}
