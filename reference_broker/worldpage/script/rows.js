// Which events are shown, how far down each stands, and which stretches a lane has.
"use strict";

const QUIET = 20e3, QUIET_PX = 30, TOP = 34;
const state = { group: "", follow: null, detail: "all", row: 16, at: 0, theme: "" };
let shown = [], ys = []; // the shown events, and how far down each stands
let messages = [], starts = [], longMessages = []; // the lines between lanes, and where those of usual length start
let bands = {}, cuts = {}, quiet = []; // stretches of lanes, and stretches without events
let height = 0, end = 0; // of all rows, with and without the space behind the last one
let followed = null, wayEvents = []; // the events about the followed message: their numbers, and those that are listed

const groups = (() => {
  const counts = new Map();
  for (const each of events) if (each.group) counts.set(each.group, (counts.get(each.group) || 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).map(([group]) => group);
})();

function isOfGroup(event) {
  if (!state.group) return true;
  if (event.queue !== undefined) return event.queue === plainName(state.group) || event.queue === "the fan";
  if (event.what === "message" && event.group === null) return state.detail === "all"; // a frame of no group
  return event.group === undefined || event.group === state.group;
}

function isMain(event) {
  if (event.kind === "AppendEntries") return Boolean(event.ok);
  if (event.what === "message") return /VoteRequest|InstallSnapshot|TimeoutNow|propose/.test(event.kind);
  return !["vote", "take", "client", "trouble"].includes(event.what);
}

function layOut() {
  shown = events.filter((each) => each.what !== "world" && isOfGroup(each) && (state.detail === "all" || isMain(each)));
  ys = []; quiet = [];
  let y = TOP + 14, before = shown.length ? shown[0].t : 0;
  let row = new Set(); // the lanes that have an event in the present row
  for (const event of shown) {
    const lane = isClient(event.at) ? CLIENTS : event.at;
    if (event.t === before && ys.length && event.at && !row.has(lane) && !row.has("")) { row.add(lane); ys.push(y); continue; }
    row = new Set([event.what === "message" ? "" : lane]);
    if (event.t - before > QUIET) { quiet.push([y, event.t - before]); y += QUIET_PX; }
    y += ["note", "broken", "healed"].includes(event.what) ? state.row + 10 : state.row;
    ys.push(y);
    before = event.t;
  }
  end = y + 30;
  height = y + Math.max(60, chart.clientHeight / 2); // so that the last event does not stand at the lower edge
  messages = []; longMessages = [];
  shown.forEach((event, place) => {
    if (event.what !== "message" || !nodes.includes(event.to)) return;
    const arrives = event.got === null ? null : yAt(event.got);
    const way = { event, y0: ys[place], y1: event.lost ? ys[place] + state.row * 1.2 : Math.max(arrives ?? end, ys[place]) };
    (way.y1 - way.y0 > 2500 ? longMessages : messages).push(way);
  });
  starts = messages.map((way) => way.y0);
  bands = bandsOf();
  cuts = cutsOf();
  byId("tall").style.height = `${height}px`;
  const slider = byId("moment");
  slider.max = Math.max(0, shown.length - 1);
}

function firstFrom(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] < wanted) low = middle + 1; else high = middle; }
  return low;
}

function placeOfTime(t) {
  let low = 0, high = shown.length;
  while (low < high) { const middle = (low + high) >> 1; if (shown[middle].t < t) low = middle + 1; else high = middle; }
  return low;
}

function yAt(t) {
  const place = placeOfTime(t);
  if (place >= shown.length) return end;
  if (shown[place].t === t || place === 0) return ys[place];
  const share = (t - shown[place - 1].t) / (shown[place].t - shown[place - 1].t);
  return ys[place - 1] + share * (ys[place] - ys[place - 1]);
}

// The stretches of each lane: up or down, its role and term in the chosen queue, and when it stood still.
function bandsOf() {
  const made = Object.fromEntries(nodes.map((at) => [at, { roles: [], stops: [] }]));
  const open = Object.fromEntries(nodes.map((at) => [at, { role: null }]));
  const close = (at, y) => { const role = open[at].role; if (role) { made[at].roles.push({ ...role, y1: y }); open[at].role = null; } };
  const group = state.group || groups[0];
  for (const event of events) {
    const lane = open[event.at];
    if (!lane) continue;
    const y = yAt(event.t);
    if (event.what === "kill" || event.what === "power") { close(event.at, y); lane.role = { y0: y, role: "down", term: 0 }; }
    else if (event.what === "start" || (event.what === "leave" && event.group === group)) close(event.at, y);
    else if ((event.what === "role" || event.what === "member") && event.group === group) {
      close(event.at, y);
      lane.role = { y0: event.begins === 0 ? TOP : y, role: event.role, term: event.term };
    } else if (event.what === "pause") made[event.at].stops.push({ y0: y, y1: yAt(event.until) });
  }
  for (const at of nodes) close(at, end);
  return made;
}

// Where neighbours in the picture do not hear each other, and where a node hears less than half of the others.
function cutsOf() {
  const cut = new Set(), made = { between: [], alone: [] }, open = new Map();
  const isCut = (one, other) => cut.has(`${one} ${other}`) || cut.has(`${other} ${one}`);
  const isAlone = (at) => nodes.filter((other) => other !== at && isCut(at, other)).length * 2 > nodes.length - 1;
  const note = (list, name, holds, y) => {
    const key = `${list} ${name}`;
    if (holds && !open.has(key)) open.set(key, y);
    else if (!holds && open.has(key)) { made[list].push({ name, y0: open.get(key), y1: y }); open.delete(key); }
  };
  for (const event of events) {
    if (event.what !== "cut" && event.what !== "free") continue;
    if (event.what === "cut") cut.add(`${event.at} ${event.to}`); else cut.delete(`${event.at} ${event.to}`);
    const y = yAt(event.t);
    nodes.forEach((at, place) => {
      note("alone", at, isAlone(at), y);
      if (place > 0) note("between", at, isCut(nodes[place - 1], at), y);
    });
  }
  for (const key of [...open.keys()]) note(key.split(" ")[0], key.slice(key.indexOf(" ") + 1), false, end);
  return made;
}

// The way of one message

function wayOf(message) {
  const found = new Set(), entries = new Map(), done = new Set();
  for (const event of events) {
    if (event.messages && event.messages.includes(message)) {
      found.add(event.index);
      if (event.what === "append") entries.set(`${event.group} ${event.place}`, event.term);
    } else if (event.group && entries.size) {
      const reaches = (first, last, once) => [...entries.keys()].some((key) => {
        const cut = key.lastIndexOf(" "), place = Number(key.slice(cut + 1));
        if (key.slice(0, cut) !== event.group || place < first || place > last) return false;
        if (once && done.has(`${event.at} ${event.what} ${key}`)) return false;
        if (once) done.add(`${event.at} ${event.what} ${key}`);
        return true;
      });
      const isIn = event.what === "disk" || event.what === "commit" ? reaches(0, event.place, true)
        : event.what === "apply" ? reaches(event.place, event.place, false)
        : event.what === "message" && event.kind === "AppendEntries" && event.ok ? reaches(event.first, event.last, false)
        : event.what === "message" && event.kind === "AppendReply" && event.ok ? reaches(0, event.last, true)
        : event.what === "drop" ? reaches(event.place, Infinity, false) : false;
      if (isIn) found.add(event.index);
    }
  }
  return found;
}
