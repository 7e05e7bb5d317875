// Draws the events that stand in the page. Only what is in view is drawn, so long worlds scroll as short ones do.
// Order: events, the fold into logs, words, rows, the canvas, the panel, controls.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;

  // -- Events ---------------------------------------------------------------------------------------------------------

  const packed = JSON.parse(byId("world").textContent);
  const SECOND = 1e6; // times are whole microseconds
  const KINDS = packed.kinds.map(([what, ...fields]) => [what, fields]);

  // `index` of an event is its number in the page. The index of an entry in its log is `place`.
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
  const hosts = [...new Set(events.map((each) => each.at))].filter(Boolean).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const CLIENTS = " clients"; // the lane of all clients
  const nodes = hosts.filter((at) => !isClient(at)), HAS_CLIENTS = hosts.some(isClient);
  const plainName = (group) => (group || "").replace(/~\d+$/, "");
  const ENTRIES = new Map(); // "group place term" -> the first append of that entry
  for (const each of events) {
    const key = `${each.group} ${each.place} ${each.term}`;
    if (each.what === "append" && !ENTRIES.has(key)) ENTRIES.set(key, each);
  }

  // -- The fold: where each member stands after an event. members.py folds the same way --------------------------------

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

  // -- Words ------------------------------------------------------------------------------------------------------------

  const seconds = (t) => (t / SECOND).toFixed(6);
  const entryOf = (event) => ENTRIES.get(`${event.group} ${event.place} ${event.term}`);
  const listed = (messages) => {
    if (!messages || !messages.length) return "";
    const all = messages.length > 2 && messages[messages.length - 1] - messages[0] === messages.length - 1;
    return all ? `${messages[0]} to ${messages[messages.length - 1]}` : messages.slice(0, 12).join(", ") + (messages.length > 12 ? " …" : "");
  };
  const plural = (messages) => (messages && messages.length === 1 ? "message" : "messages");
  const nth = (count) => (count === 1 ? "" : `, for the ${count}${["th", "st", "nd", "rd"][count % 100 > 10 && count % 100 < 14 ? 0 : count % 10] || "th"} time`);
  const range = (first, last) => (first === last ? `entry ${first}` : `entries ${first} to ${last}`);
  const ROLES = { follower: "follower", pre_vote: "pre-candidate", candidate: "candidate", leader: "leader" };

  function roleWords({ role, leader, term }) {
    if (role === "leader") return `leads in term ${term}`;
    if (role === "follower") return leader ? `follows ${leader} in term ${term}` : `knows no leader in term ${term}`;
    return role === "candidate" ? `asks for votes in term ${term}` : `asks whether it would get votes (term ${term})`;
  }

  function messageWords({ kind, term, first, last, ok }) {
    switch (kind) {
      case "AppendEntries": return ok ? range(first, last) : `no entries; committed up to ${last}`;
      case "AppendReply": return ok ? `on my disk up to ${last}` : `refused; I want entry ${first}`;
      case "PreVoteRequest": return `would you vote for me?`;
      case "PreVoteReply": return ok ? "I would vote for you" : "I would not vote for you";
      case "VoteRequest": return `vote for me in term ${term}`;
      case "VoteReply": return ok ? `you have my vote in term ${term}` : `no vote in term ${term}`;
      case "InstallSnapshot": return `snapshot up to ${last}`;
      case "InstallReply": return `snapshot ${last} received`;
      case "Heartbeat": return "am I still the leader?";
      case "HeartbeatReply": return "you are still the leader for me";
      case "TimeoutNow": return "stand for election now";
      case "LeaderSynced": return `on my disk up to ${last}`;
      case "propose": return "a request for the leader";
      default: return (kind || "").replace(/_/g, " ");
    }
  }

  const memberWords = (e) => (e.begins ? "begins" : "stands") + ` with log up to ${e.last}` + (e.snapshot ? `, snapshot ${e.snapshot}` : "") + `, term ${e.term}`;

  const TEXTS = {
    world: () => "the events begin", note: (e) => e.title, healed: () => "all trouble ends",
    broken: (e) => `${e.number || "A defect"}: ${e.statement}`,
    start: (e) => `starts${nth(e.boot)}`, kill: () => "is killed", power: () => "loses power",
    pause: (e) => `stands still until ${seconds(e.until)}`, trouble: (e) => `trouble: ${e.name}`,
    cut: (e) => `is no longer heard by ${e.to}`, free: (e) => `is heard by ${e.to} again`,
    link: (e) => (e.up ? `has a link with ${e.to}` : `has lost its link with ${e.to}`), says: (e) => e.words,
    member: (e) => (e.log === null ? roleWords(e) : memberWords(e)),
    role: roleWords,
    append: (e) => `writes entry ${e.place}: ${e.words || "no words"}`,
    disk: (e) => `has up to ${e.place} on disk`, vote: (e) => `term ${e.term}` + (e.vote ? `, vote for ${e.vote}` : "") + " on disk",
    drop: (e) => `drops its log from ${e.place} on`, reset: (e) => `goes on behind snapshot ${e.place}`,
    snapshot: (e) => `snapshot ${e.place} on disk`, install: (e) => `leader's snapshot ${e.place} on disk`,
    commit: (e) => `knows: committed up to ${e.place}`,
    apply: (e) => `applies ${e.place}`, take: (e) => `takes over the state at ${e.place}`, leave: () => "deletes its member",
    message: (e) => `to ${e.to}: ${messageWords(e)}`,
    owner: () => "owns this queue", command: (e) => e.words, bury: (e) => `dead letters (${e.words}): ${listed(e.messages)}`,
    deal: (e) => `deals ${listed(e.messages)} to ${e.to}, not local`,
    deliver: (e) => `delivers ${listed(e.messages)} to ${e.to}${e.again ? " again" : ""}`,
    publish: (e) => `publishes ${listed(e.messages)}`, confirm: (e) => `confirm of ${listed(e.messages)}`,
    refuse: (e) => `refusal of ${listed(e.messages)}`, get: (e) => `gets ${listed(e.messages)}${e.again ? " again" : ""}`,
    settle: (e) => `${e.words} ${listed(e.messages)}`, client: (e) => e.words,
  };
  const textOf = (event) => TEXTS[event.what](event);
  const IN_LANE = {
    cut: (e) => `cut to ${e.to}`, free: (e) => `free to ${e.to}`, append: (e) => `write ${e.place}: ${e.words || ""}`, disk: (e) => `disk: to ${e.place}`,
    commit: (e) => `commit ${e.place}`, apply: (e) => `apply ${e.place}`, message: (e) => `→ ${e.to}: ${messageWords(e)}`, drop: (e) => `drop from ${e.place}`,
    pause: () => "stands still", link: (e) => `${e.up ? "link" : "no link"}: ${e.to}`, vote: (e) => `term ${e.term}` + (e.vote ? `, for ${e.vote}` : ""), member: (e) => (e.log === null ? roleWords(e) : `log to ${e.last}`),
  };
  const laneText = (event) => (IN_LANE[event.what] || TEXTS[event.what])(event);

  function fullText(event) {
    const text = textOf(event);
    if (event.what === "message") {
      const fate = event.lost ? " The message is lost." : event.got === null ? "" : ` It arrives after ${((event.got - event.t) / 1000).toFixed(2)} ms.`;
      return `sends ${event.to} “${messageWords(event)}”.${fate}`;
    }
    if (event.what === "apply" && entryOf(event)) return `${text}: ${entryOf(event).words}`;
    if (event.what === "broken") return `${text}. ${event.seen}`;
    if (["publish", "get", "confirm", "refuse", "settle"].includes(event.what)) return `${text} (${plural(event.messages)}, ${event.queue})`;
    return text;
  }

  // -- Rows: which events are shown, and how far down each stands ---------------------------------------------------------

  const QUIET = 20e3, QUIET_PX = 30, TOP = 34;
  const state = { group: "", follow: null, detail: "all", row: 16, at: 0, theme: "" };
  let shown = [], ys = [], messages = [], starts = [], longMessages = [], bands = {}, cuts = {}, quiet = [], height = 0, end = 0, followed = null;
  let wayEvents = [];

  const groups = (() => {
    const counts = new Map();
    for (const each of events) if (each.group) counts.set(each.group, (counts.get(each.group) || 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]).map(([group]) => group);
  })();

  function isOfGroup(event) {
    if (!state.group) return true;
    if (event.queue !== undefined) return event.queue === plainName(state.group) || event.queue === "the fan";
    return event.group === undefined || event.group === state.group || (event.what === "message" && event.group === null && state.detail === "all");
  }

  function isMain(event) {
    if (event.what === "message") return !event.kind.endsWith("Reply") && ((event.kind === "AppendEntries" && event.ok) || /Vote|Install|propose/.test(event.kind));
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

  // -- The way of one message ---------------------------------------------------------------------------------------------

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

  // -- The canvas ---------------------------------------------------------------------------------------------------------

  const chart = byId("chart"), canvas = chart.querySelector("canvas"), screenPen = canvas.getContext("2d");
  let pen = screenPen; // what the drawing functions draw with
  const TERMS = ["quorum", "classic", "lazy", "mirrored", "strict-ordered"];
  const SANS = getComputedStyle(document.body).fontFamily;
  let colours = {}, lanes = {}, waiting = false, width = 0, gutter = 0;

  function readColours() {
    const style = getComputedStyle(root);
    colours = Object.fromEntries(["page", "surface", "ink", "soft", "rule", "grid", "accent", "warn", "bad", "good-wash", "bad-wash", ...TERMS]
      .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  const termToken = (term) => TERMS[(term + TERMS.length - 1) % TERMS.length];
  const termColour = (term) => colours[termToken(term)];


  function measure() {
    width = chart.clientWidth;
    gutter = width < 560 ? 42 : 74;
    const columns = [...nodes, ...(HAS_CLIENTS ? [CLIENTS] : [])], share = (width - gutter) / columns.length;
    lanes = Object.fromEntries(columns.map((at, place) => [at, { x: gutter + place * share, w: share }]));
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = chart.clientHeight * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${chart.clientHeight}px`;
  }

  const laneOf = (at) => lanes[isClient(at) ? CLIENTS : at];
  const isDim = (event) => followed !== null && !followed.has(event.index) && !["note", "broken", "healed"].includes(event.what);

  function ask() {
    if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
  }

  function draw() {
    const ratio = devicePixelRatio || 1, top = chart.scrollTop, bottom = top + chart.clientHeight;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours.page;
    pen.fillRect(0, 0, width, chart.clientHeight);
    pen.translate(0, -top);
    drawLanes(top, bottom);
    drawQuiet(top, bottom);
    const from = Math.max(0, firstFrom(ys, top - 40)), to = Math.min(shown.length, firstFrom(ys, bottom + 40));
    for (const way of longMessages) if (way.y1 >= top && way.y0 <= bottom) drawMessage(way);
    for (let place = firstFrom(starts, top - 2600); place < messages.length && messages[place].y0 <= bottom; place++) {
      if (messages[place].y1 >= top) drawMessage(messages[place]);
    }
    let lastTime = -Infinity;
    for (let place = from; place < to; place++) {
      drawEvent(shown[place], ys[place]);
      if (ys[place] - lastTime >= 40) { drawTime(shown[place].t, ys[place]); lastTime = ys[place]; }
    }
    drawCursor();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawHeads();
  }

  function drawLanes(top, bottom) {
    const between = (part, inset, call) => { const y0 = Math.max(part.y0, top), y1 = Math.min(part.y1, bottom); if (y1 > y0) call(y0, y1 - y0, inset); };
    for (const part of cuts.alone) between(part, 0, (y, tall) => { pen.fillStyle = colours["bad-wash"]; pen.fillRect(lanes[part.name].x, y, lanes[part.name].w, tall); });
    for (const at of nodes) {
      const { x, w } = lanes[at];
      pen.strokeStyle = colours.grid;
      pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(x + 0.5, top); pen.lineTo(x + 0.5, bottom); pen.stroke();
      for (const part of bands[at].roles) between(part, 0, (y, tall) => drawBand(part, x, y, w, tall));
      for (const part of bands[at].stops) between(part, 0, (y, tall) => { pen.fillStyle = colours.warn; pen.globalAlpha = 0.16; pen.fillRect(x, y, w, tall); pen.globalAlpha = 1; });
    }
    for (const part of cuts.between) between(part, 0, (y, tall) => {
      const { x } = lanes[part.name];
      pen.strokeStyle = colours.bad; pen.lineWidth = 3; pen.setLineDash([3, 5]);
      pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x, y + tall); pen.stroke(); pen.setLineDash([]);
    });
    const side = lanes[CLIENTS];
    if (side) { pen.fillStyle = colours.surface; pen.fillRect(side.x, top, side.w, bottom - top); }
  }

  function drawBand({ role, term }, x, y, w, tall) {
    if (role === "down") {
      pen.fillStyle = colours.rule; pen.globalAlpha = 0.55; pen.fillRect(x + 1, y, w - 1, tall); pen.globalAlpha = 1;
      return;
    }
    pen.fillStyle = termColour(term);
    if (role === "leader") { pen.globalAlpha = 0.1; pen.fillRect(x + 1, y, w - 1, tall); pen.globalAlpha = 1; pen.fillRect(x + 4, y, 10, tall); }
    else if (role === "follower") pen.fillRect(x + 7, y, 4, tall);
    else { pen.strokeStyle = termColour(term); pen.lineWidth = 4; pen.setLineDash([3, 3]); pen.beginPath(); pen.moveTo(x + 9, y); pen.lineTo(x + 9, y + tall); pen.stroke(); pen.setLineDash([]); }
  }

  function drawQuiet(top, bottom) {
    pen.font = `12px ${SANS}`;
    for (const [y, lasts] of quiet) {
      if (y < top - QUIET_PX || y > bottom) continue;
      const middle = y + QUIET_PX / 2 + 4;
      pen.strokeStyle = colours.rule; pen.lineWidth = 1; pen.setLineDash([1, 4]);
      pen.beginPath(); pen.moveTo(gutter, middle); pen.lineTo(width, middle); pen.stroke(); pen.setLineDash([]);
      pen.fillStyle = colours.soft; pen.textAlign = "center";
      const text = lasts > SECOND ? `${(lasts / SECOND).toFixed(2)} s` : `${Math.round(lasts / 1000)} ms`;
      halo(text, gutter / 2, middle + 4);
      pen.textAlign = "left";
    }
  }

  function halo(text, x, y) {
    pen.lineWidth = 3; pen.lineJoin = "round"; pen.strokeStyle = colours.page;
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }

  function drawTime(t, y) {
    pen.fillStyle = colours.soft; pen.font = `11px ${SANS}`; pen.textAlign = "right";
    pen.fillText((t / SECOND).toFixed(width < 560 ? 2 : 4), gutter - 8, y + 4);
    pen.textAlign = "left";
  }

  function messageColour({ kind, ok }) {
    if (/Vote|Timeout/.test(kind)) return colours.warn;
    if (kind === "AppendEntries" && ok) return colours.accent;
    if (/Install/.test(kind)) return colours.mirrored;
    return colours.soft;
  }

  function drawMessage({ event, y0, y1 }) {
    const from = laneOf(event.at), to = laneOf(event.to);
    if (!from || !to) return;
    const side = to.x > from.x ? 1 : -1;
    const labelled = side > 0 && from.w > 116 && state.row >= 14;
    if (labelled) pen.font = `12px ${SANS}`;
    let x0 = labelled ? from.x + 36 + Math.min(from.w - 48, pen.measureText(clipped(laneText(event), from.w - 36)).width) : from.x + 9 + side * 6, x1 = to.x + 9 - side * 6, end = y1;
    if (event.lost) { x1 = x0 + (x1 - x0) * 0.62; }
    pen.globalAlpha = isDim(event) ? 0.1 : 0.85;
    pen.strokeStyle = pen.fillStyle = messageColour(event);
    pen.lineWidth = event.kind === "AppendEntries" && event.ok ? 1.6 : 1;
    pen.setLineDash(event.lost ? [5, 4] : []);
    pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, end); pen.stroke(); pen.setLineDash([]);
    if (event.lost) cross(x1, end, 4);
    else {
      const angle = Math.atan2(end - y0, x1 - x0);
      pen.beginPath(); pen.moveTo(x1, end);
      pen.lineTo(x1 - 7 * Math.cos(angle - 0.4), end - 7 * Math.sin(angle - 0.4));
      pen.lineTo(x1 - 7 * Math.cos(angle + 0.4), end - 7 * Math.sin(angle + 0.4));
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  function cross(x, y, size) {
    pen.lineWidth = 2; pen.beginPath();
    pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size); pen.moveTo(x + size, y - size); pen.lineTo(x - size, y + size); pen.stroke();
  }

  // Marks: each kind has a shape of its own, so that colour is never alone.
  const SHAPES = {
    append: (x, y) => { pen.lineWidth = 1.5; pen.setLineDash([2, 1.5]); pen.strokeRect(x - 4, y - 4, 8, 8); pen.setLineDash([]); },
    disk: (x, y) => pen.fillRect(x - 4.5, y - 4.5, 9, 9),
    commit: (x, y) => { pen.beginPath(); pen.moveTo(x, y - 6); pen.lineTo(x + 6, y); pen.lineTo(x, y + 6); pen.lineTo(x - 6, y); pen.fill(); },
    apply: (x, y) => { pen.beginPath(); pen.arc(x, y, 3, 0, 7); pen.fill(); },
    role: (x, y) => { pen.beginPath(); pen.moveTo(x - 5, y + 5); pen.lineTo(x, y - 6); pen.lineTo(x + 5, y + 5); pen.fill(); },
    stop: (x, y) => cross(x, y, 5),
    snapshot: (x, y) => { pen.strokeRect(x - 5, y - 5, 10, 10); pen.fillRect(x - 2.5, y - 2.5, 5, 5); },
    drop: (x, y) => { pen.lineWidth = 2; pen.strokeRect(x - 4, y - 4, 8, 8); pen.beginPath(); pen.moveTo(x - 6, y + 6); pen.lineTo(x + 6, y - 6); pen.stroke(); },
    cut: (x, y) => { pen.lineWidth = 2; pen.beginPath(); pen.moveTo(x - 6, y - 3); pen.lineTo(x - 1, y - 3); pen.moveTo(x + 6, y + 3); pen.lineTo(x + 1, y + 3); pen.moveTo(x - 2, y + 5); pen.lineTo(x + 2, y - 5); pen.stroke(); },
    deliver: (x, y) => { pen.beginPath(); pen.moveTo(x - 5, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x - 5, y + 5); pen.fill(); },
    client: (x, y) => { pen.lineWidth = 1.5; pen.beginPath(); pen.arc(x, y, 4, 0, 7); pen.stroke(); },
    confirm: (x, y) => { pen.lineWidth = 2.5; pen.beginPath(); pen.moveTo(x - 5, y); pen.lineTo(x - 1, y + 4); pen.lineTo(x + 5, y - 5); pen.stroke(); },
    other: (x, y) => { pen.beginPath(); pen.arc(x, y, 1.8, 0, 7); pen.fill(); },
  };
  const LOOKS = {
    append: ["append", "ink"], disk: ["disk", "ink"], commit: ["commit", "accent"], apply: ["apply", "ink"], role: ["role", null], member: ["role", "soft"],
    start: ["role", "ink"], kill: ["stop", "bad"], power: ["stop", "bad"], pause: ["stop", "warn"], cut: ["cut", "bad"], free: ["cut", "soft"], link: ["cut", "soft"], says: ["other", "warn"],
    snapshot: ["snapshot", "mirrored"], install: ["snapshot", "mirrored"], reset: ["snapshot", "bad"], drop: ["drop", "bad"],
    deliver: ["deliver", "accent"], deal: ["other", "soft"], bury: ["deliver", "bad"], publish: ["deliver", "ink"], confirm: ["confirm", "accent"], refuse: ["stop", "bad"],
    get: ["client", "accent"], settle: ["client", "ink"], command: ["apply", "ink"], owner: ["role", "ink"],
  };
  const LEGEND = [
    ["append", "ink", "an entry is written, in memory so far"], ["disk", "ink", "the log is synced: on disk up to an entry"],
    ["commit", "accent", "the member knows that entries are committed"], ["apply", "ink", "an entry is applied to the queue"],
    ["role", "quorum", "a start, an election, a change of role"], ["stop", "bad", "a kill, a loss of power, a pause (yellow)"],
    ["cut", "bad", "a direction is cut (red) or free again (grey)"], ["snapshot", "mirrored", "a snapshot"],
    ["drop", "bad", "a member drops the end of its log"], ["deliver", "accent", "a delivery, or a publish (black)"],
    ["confirm", "accent", "a client hears a confirm"], ["client", "accent", "a client gets or acknowledges a message"],
  ];

  function shortText(event) {
    if (event.place !== undefined) return { append: `+${event.place}`, drop: `−${event.place}` }[event.what] || `${event.place}`;
    if (event.what === "role") return event.role === "leader" ? `L${event.term}` : `${event.term}`;
    if (event.messages && event.messages.length) return `${event.messages[0]}${event.messages.length > 1 ? "…" : ""}`;
    return "";
  }

  function drawEvent(event, y) {
    if (["note", "broken", "healed"].includes(event.what)) return drawAcross(event, y);
    const lane = laneOf(event.at);
    if (!lane) return;
    const [shape, token] = event.what === "link" && !event.up ? ["cut", "bad"] : LOOKS[event.what] || ["other", "soft"];
    pen.globalAlpha = isDim(event) ? 0.14 : 1;
    pen.fillStyle = pen.strokeStyle = token ? colours[token] : termColour(event.term);
    if (["append", "disk", "drop"].includes(event.what)) pen.fillStyle = pen.strokeStyle = termColour(event.term);
    const ofClient = isClient(event.at), x = lane.x + (ofClient ? 10 : 24);
    if (event.what !== "message") SHAPES[shape](x, y);
    const room = lane.w - (x - lane.x) - 12;
    if (room > 16 && state.row >= 14) {
      pen.font = `${room > 80 ? 12 : 11}px ${SANS}`;
      pen.fillStyle = event.what === "message" ? colours.soft : colours.ink;
      const text = room > 80 ? `${ofClient ? `${event.at} ` : ""}${laneText(event)}` : event.what === "message" ? "" : shortText(event);
      if (text) halo(clipped(text, room), x + 10, y + 4);
    }
    pen.globalAlpha = 1;
  }

  function drawAcross(event, y) {
    const token = event.what === "broken" ? "bad" : event.what === "note" ? "accent" : "soft";
    pen.strokeStyle = colours[token]; pen.lineWidth = event.what === "healed" ? 1 : 2;
    pen.beginPath(); pen.moveTo(gutter, y + 7); pen.lineTo(width, y + 7); pen.stroke();
    pen.font = `600 12.5px ${SANS}`; pen.fillStyle = colours[token];
    halo(clipped(textOf(event), width - gutter - 16), gutter + 6, y + 2);
  }

  const sizes = new Map();
  function clipped(text, room) {
    const key = `${pen.font} ${text}`;
    if (!sizes.has(key)) { if (sizes.size > 20000) sizes.clear(); sizes.set(key, pen.measureText(text).width); }
    const size = sizes.get(key);
    if (size <= room) return text;
    return `${text.slice(0, Math.max(1, Math.floor((text.length * room) / size) - 1))}…`;
  }

  function drawCursor() {
    const place = placeOf(state.at);
    if (!shown.length) return;
    const y = ys[place];
    pen.fillStyle = colours.accent; pen.globalAlpha = 0.14;
    pen.fillRect(0, y - 9, width, 18);
    pen.globalAlpha = 1;
    pen.fillRect(0, y - 9, 4, 18);
  }

  function drawHeads() {
    pen.fillStyle = colours.page; pen.globalAlpha = 0.94; pen.fillRect(0, 0, width, TOP - 4); pen.globalAlpha = 1;
    pen.strokeStyle = colours.rule; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(0, TOP - 4.5); pen.lineTo(width, TOP - 4.5); pen.stroke();
    pen.fillStyle = colours.ink; pen.font = `600 13px ${SANS}`;
    for (const [at, { x, w }] of Object.entries(lanes)) pen.fillText(at === CLIENTS ? (w > 60 ? "clients" : "cl.") : at, x + 5, 20);
    pen.fillStyle = colours.soft; pen.font = `11px ${SANS}`; pen.textAlign = "right";
    pen.fillText(width < 560 ? "s" : "seconds", gutter - 8, 20);
    pen.textAlign = "left";
  }

  // -- The panel: logs, events around, the way of the message ---------------------------------------------------------------

  const placeOf = (index) => {
    let low = 0, high = shown.length;
    while (low < high) { const middle = (low + high) >> 1; if (shown[middle].index < index) low = middle + 1; else high = middle; }
    return Math.min(low, Math.max(0, shown.length - 1));
  };

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) key === "style" ? made.style.setProperty(...value) : made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const ENTRIES_SHOWN = 10;

  function logOf(at, member, host) {
    const made = element("div", { class: `log${host && !host.up ? " down" : ""}`, style: ["--term", `var(--${termToken(member.term)})`] });
    const who = host && !host.up ? "down" : host && host.until > events[state.at].t ? "stands still" : `${ROLES[member.role] || member.role} in term ${member.term}`;
    made.append(element("div", { class: "who" }, element("b", {}, at), ` ${who}`));
    if (member.isUnknown) { made.append(element("div", { class: "says" }, "what is in the log is not recorded")); return made; }
    const boxes = element("div", { class: "entries" });
    const first = Math.max(member.snapshot + 1, member.last - ENTRIES_SHOWN + 1);
    if (first > 1) boxes.append(element("span", { class: "entry cut", title: member.snapshot ? `a snapshot up to ${member.snapshot}` : "" }, first === member.snapshot + 1 ? `▣ ${member.snapshot}` : "…"));
    for (let place = first; place <= member.last; place++) {
      const term = termAt(member, place), entry = ENTRIES.get(`${state.group || groups[0]} ${place} ${term}`);
      const classes = ["entry", place > member.disk ? "lost" : "", place <= member.commit ? "done" : "", place <= member.applied ? "used" : "",
        state.follow !== null && entry && entry.messages.includes(state.follow) ? "followed" : ""].filter(Boolean).join(" ");
      boxes.append(element("span", { class: classes, title: `entry ${place} of term ${term}${entry ? `: ${entry.words}` : ""}`, style: ["--term", `var(--${termToken(term)})`] }, String(place)));
    }
    if (member.last === 0) boxes.append(element("span", { class: "entry cut" }, "empty"));
    made.append(boxes);
    const above = range(member.disk + 1, member.last), isWhole = member.last <= member.disk;
    if (host && !host.up) made.append(element("div", { class: "says" }, `its disk has the log up to ${member.disk}${isWhole ? "" : `; ${above} may be lost`}`));
    else {
      const lost = isWhole ? "a loss of power takes nothing" : element("b", {}, `a loss of power takes ${above}`);
      made.append(element("div", { class: "says" }, `committed ${member.commit}, applied ${member.applied}; `, lost));
    }
    return made;
  }

  function showLogs(now) {
    const group = state.group || groups[0];
    const logs = nodes.filter((at) => now.members[`${at} ${group}`]).map((at) => logOf(at, now.members[`${at} ${group}`], now.hosts[at]));
    byId("logs").replaceChildren(element("div", { class: "all-copies" }, ...copiesOf(now, group)), ...(logs.length ? logs : [element("p", { class: "soft" }, "No node has a member of this queue.")]));
  }

  // On how many disks the newest entries are: the reason why an entry is committed, or is not.
  function copiesOf(now, group) {
    const known = nodes.map((at) => [at, now.members[`${at} ${group}`]]).filter(([, member]) => member && !member.isUnknown);
    const newest = known.reduce((best, [, member]) => (best && best.term >= member.term ? best : member), null);
    const voters = newest && newest.members ? newest.members.split(" ")[0].split(",") : known.map(([at]) => at);
    const members = known.filter(([at]) => voters.includes(at));
    const need = Math.floor(voters.length / 2) + 1, found = new Map();
    for (const [, member] of members) {
      for (let place = Math.max(member.snapshot + 1, member.last - 2); place <= member.last; place++) {
        const key = `${place} ${termAt(member, place)}`;
        if (!found.has(key)) found.set(key, []);
      }
    }
    for (const [key, disks] of found) {
      const [place, term] = key.split(" ").map(Number);
      for (const [at, member] of members) if (termAt(member, place) === term && place <= member.disk) disks.push(at);
    }
    const rows = [...found].map(([key, disks]) => [key.split(" ").map(Number), disks]).sort((one, other) => one[0][0] - other[0][0] || one[0][1] - other[0][1]).slice(-5);
    return rows.map(([[place, term], disks]) => {
      const entry = ENTRIES.get(`${group} ${place} ${term}`), about = entry && (entry.messages.length ? `${plural(entry.messages)} ${listed(entry.messages)}` : entry.words.slice(0, 28)), named = about ? ` (${about})` : "";
      const count = `${disks.length} of ${voters.length} disks`, enough = disks.length >= need;
      return element("p", { class: "copies", style: ["margin", "0 0 .25rem"] }, element("span", { class: `entry${enough ? " done" : ""}`, style: ["--term", `var(--${termToken(term)})`] }, String(place)),
        ` term ${term}${named}: on ${count}${disks.length ? ` (${disks.join(", ")})` : ""}, ${enough ? "a majority" : "no majority"}`);
    });
  }

  function listItem(event) {
    const made = element("li", { "data-event": event.index, "aria-current": event.index === state.at ? "true" : null },
      element("span", {}, seconds(event.t)), element("b", {}, event.at), element("span", {}, textOf(event)));
    return made;
  }

  function showMoment() {
    if (!shown.length) { byId("now").textContent = "No event of this kind."; return; }
    const place = placeOf(state.at), event = shown[place];
    state.at = event.index;
    const now = stateAfter(event.index), slider = byId("moment");
    slider.value = place;
    slider.setAttribute("aria-valuetext", `${seconds(event.t)} s: ${event.at} ${textOf(event)}`);
    byId("when").textContent = `At ${seconds(event.t)} s, event ${place + 1} of ${shown.length}`;
    byId("now").replaceChildren(element("b", {}, event.at), ` ${fullText(event)}`);
    showLogs(now);
    byId("near").replaceChildren(...shown.slice(Math.max(0, place - 5), place + 7).map(listItem));
    for (const each of byId("way").querySelectorAll("li")) {
      if (Number(each.dataset.event) === event.index) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
    }
    showNote();
    rememberState();
  }

  const notes = events.filter((each) => each.what === "note");
  const noteAt = () => { let found = -1; notes.forEach((each, place) => { if (each.index <= state.at) found = place; }); return found; };

  function showNote() {
    if (!notes.length) return;
    const place = noteAt(), note = notes[Math.max(0, place)];
    byId("story").hidden = false;
    byId("note-place").textContent = `Step ${Math.max(0, place) + 1} of ${notes.length}`;
    if (byId("note-title").textContent !== note.title) { byId("note-title").textContent = note.title; byId("note-text").textContent = note.text; }
    byId("earlier-note").disabled = place <= 0;
    byId("later-note").disabled = place >= notes.length - 1;
  }

  // -- Moving, choosing -------------------------------------------------------------------------------------------------------

  function goTo(index, { scroll = true } = {}) {
    state.at = Math.max(0, Math.min(events.length - 1, index));
    showMoment();
    const y = ys[placeOf(state.at)] ?? 0;
    if (scroll && (y < chart.scrollTop + TOP + 30 || y > chart.scrollTop + chart.clientHeight - 40)) chart.scrollTop = Math.max(0, y - chart.clientHeight * 0.35);
    ask();
  }

  const goBy = (count) => goTo((shown[Math.max(0, Math.min(shown.length - 1, placeOf(state.at) + count))] || { index: 0 }).index);
  const goToNote = (step) => { const note = notes[Math.max(0, Math.min(notes.length - 1, noteAt() + step))]; if (note) goTo(note.index); };
  const goOnTheWay = (step) => {
    const ahead = step > 0 ? wayEvents.find((each) => each.index > state.at) : [...wayEvents].reverse().find((each) => each.index < state.at);
    if (ahead) goTo(ahead.index);
  };

  function follow(message) {
    state.follow = message;
    followed = message === null ? null : wayOf(message);
    const all = followed === null ? [] : [...followed].map((index) => events[index]);
    wayEvents = all.filter((each) => each.what !== "message" || state.detail === "all");
    byId("way").hidden = followed === null;
    if (followed !== null) {
      byId("way").querySelector("h2").textContent = all.length ? `The way of message ${message}` : `No event is about message ${message}`;
      byId("way").querySelector("ol").replaceChildren(...wayEvents.slice(0, 400).map(listItem));
    }
    showMoment();
    ask();
  }

  function choose(changes) {
    Object.assign(state, changes);
    layOut();
    goTo(state.at);
  }

  function showTheme(theme) {
    state.theme = theme;
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    byId("theme").value = theme;
    readColours();
    drawLegend();
    ask();
  }

  function rememberState() {
    const parts = [`at=${state.at}`, state.group !== groups[0] && `queue=${state.group || "all"}`, state.follow !== null && `message=${state.follow}`, state.theme && `theme=${state.theme}`];
    try { history.replaceState(null, "", `#${parts.filter(Boolean).map(encodeURI).join("&")}`); } catch { /* a page in a frame without an address */ }
  }

  function readState() {
    for (const part of decodeURI(location.hash.slice(1)).split("&")) {
      const [key, value] = part.split("=");
      if (key === "at" && events[Number(value)]) state.at = Number(value);
      else if (key === "queue") state.group = value === "all" ? "" : groups.includes(value) ? value : state.group;
      else if (key === "message" && /^\d+$/.test(value)) state.follow = Number(value);
      else if (key === "theme" && ["light", "dark"].includes(value)) state.theme = value;
    }
  }

  function drawLegend() {
    const list = byId("legend").querySelector("ul");
    list.replaceChildren(...LEGEND.map(([shape, token, text]) => {
      const small = element("canvas", { width: 40, height: 40, "aria-hidden": "true" });
      small.style.width = small.style.height = "20px";
      pen = small.getContext("2d");
      pen.scale(2, 2);
      pen.fillStyle = pen.strokeStyle = colours[token];
      SHAPES[shape](10, 10);
      pen = screenPen;
      return element("li", {}, small, text);
    }), element("li", {}, "Bar of a lane: thick for a leader, thin for a follower, dashed for a candidate; its colour is the term"),
    element("li", {}, "Lines: messages between nodes; the slope is their delay; dashed with a cross: lost. Blue entries, yellow votes, grey answers"));
  }

  function startPage() {
    const broken = events.find((each) => each.what === "broken");
    const last = events[events.length - 1], first = events.find((each) => each.what !== "world" && each.what !== "member") || last;
    const part = head.total > events.length ? `${events.length.toLocaleString("en")} of ${head.total.toLocaleString("en")} events` : `${events.length.toLocaleString("en")} events`;
    byId("extent").textContent = last ? `${part}, from ${seconds(first.t)} to ${seconds(last.t)} seconds, ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}` : "No events";
    byId("again").hidden = !head.command;
    if (broken) {
      byId("broken").hidden = false;
      byId("broken").querySelector("b").textContent = `${broken.number || "A defect"}: ${broken.statement}`;
      byId("broken").querySelector("span").textContent = `${seconds(broken.t)} s: ${broken.seen}`;
      byId("broken").querySelector("button").addEventListener("click", () => goTo(broken.index));
    }
    const named = broken && groups.find((group) => broken.seen.includes(plainName(group)));
    state.group = named || groups.find((group) => group !== "metadata") || groups[0] || "";
    byId("group").append(...groups.map((group) => element("option", { value: group }, group)), element("option", { value: "" }, "all"));
    state.at = broken ? broken.index : notes.length ? notes[0].index : 0;
    readState();
    byId("group").value = state.group;
    if (state.follow !== null) byId("follow").value = state.follow;
    listen(broken);
    measure();
    showTheme(state.theme);
    layOut();
    if (state.follow !== null) follow(state.follow);
    goTo(state.at);
  }

  function listen(broken) {
    byId("group").addEventListener("change", (event) => choose({ group: event.target.value }));
    byId("detail").addEventListener("change", (event) => choose({ detail: event.target.value }));
    byId("row").addEventListener("change", (event) => choose({ row: Number(event.target.value) }));
    byId("theme").addEventListener("change", (event) => { showTheme(event.target.value); rememberState(); });
    byId("follow").addEventListener("input", (event) => follow(/^\s*\d+\s*$/.test(event.target.value) ? Number(event.target.value) : null));
    byId("moment").addEventListener("input", (event) => goTo((shown[Number(event.target.value)] || { index: 0 }).index));
    byId("earlier-note").addEventListener("click", () => goToNote(-1));
    byId("later-note").addEventListener("click", () => goToNote(1));
    chart.addEventListener("scroll", ask, { passive: true });
    canvas.addEventListener("click", (event) => {
      const y = event.offsetY + chart.scrollTop, place = firstFrom(ys, y - state.row / 2);
      if (shown.length) goTo(shown[Math.min(place, shown.length - 1)].index, { scroll: false });
    });
    for (const list of [byId("near"), byId("way")]) list.addEventListener("click", (event) => { const item = event.target.closest("[data-event]"); if (item) goTo(Number(item.dataset.event)); });
    addEventListener("resize", () => { measure(); ask(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showTheme(state.theme));
    document.addEventListener("keydown", (event) => pressed(event, broken));
  }

  function pressed(event, broken) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input[type=text], select");
    if (field) { if (event.key === "Escape") field.blur(); return; }
    const isSlider = event.target === byId("moment");
    const acts = {
      ArrowDown: () => goBy(1), ArrowUp: () => goBy(-1), PageDown: () => goBy(10), PageUp: () => goBy(-10),
      Home: () => goBy(-shown.length), End: () => goBy(shown.length), ",": () => goOnTheWay(-1), ".": () => goOnTheWay(1),
      "/": () => byId("follow").focus(), b: () => broken && goTo(broken.index),
      ...(isSlider ? {} : { ArrowRight: () => goToNote(1), ArrowLeft: () => goToNote(-1) }),
    };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  }

  startPage();
  window.worldPage = { events, stateAfter, goTo, shown: () => shown, wayOf, state };
})();
