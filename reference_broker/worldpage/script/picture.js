// The canvas. Only what is in view is drawn, so long worlds scroll as short ones do.
"use strict";

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
  gutter = width < 560 ? 46 : 74;
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
  const inView = (parts, call) => {
    for (const part of parts) {
      const y0 = Math.max(part.y0, top), y1 = Math.min(part.y1, bottom);
      if (y1 > y0) call(part, y0, y1 - y0);
    }
  };
  inView(cuts.alone, (part, y, tall) => {
    const { x, w } = lanes[part.name];
    pen.fillStyle = colours["bad-wash"];
    pen.fillRect(x, y, w, tall);
  });
  for (const at of nodes) {
    const { x, w } = lanes[at];
    pen.strokeStyle = colours.grid;
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(x + 0.5, top); pen.lineTo(x + 0.5, bottom); pen.stroke();
    inView(bands[at].roles, (part, y, tall) => drawBand(part, x, y, w, tall));
    inView(bands[at].stops, (_part, y, tall) => washed(colours.warn, 0.16, x, y, w, tall));
  }
  inView(cuts.between, (part, y, tall) => {
    const { x } = lanes[part.name];
    pen.strokeStyle = colours.bad; pen.lineWidth = 3; pen.setLineDash([3, 5]);
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x, y + tall); pen.stroke(); pen.setLineDash([]);
  });
  const side = lanes[CLIENTS];
  if (side) { pen.fillStyle = colours.surface; pen.fillRect(side.x, top, side.w, bottom - top); }
}

function washed(colour, alpha, x, y, w, tall) {
  pen.fillStyle = colour;
  pen.globalAlpha = alpha;
  pen.fillRect(x, y, w, tall);
  pen.globalAlpha = 1;
}

function drawBand({ role, term }, x, y, w, tall) {
  if (role === "down") return washed(colours.rule, 0.55, x + 1, y, w - 1, tall);
  const colour = pen.strokeStyle = termColour(term);
  if (role === "leader") {
    washed(colour, 0.1, x + 1, y, w - 1, tall);
    washed(colour, 1, x + 4, y, 10, tall);
  } else if (role === "follower") washed(colour, 1, x + 7, y, 4, tall);
  else {
    pen.lineWidth = 4;
    pen.setLineDash([3, 3]);
    path([x + 9, y], [x + 9, y + tall]);
    pen.setLineDash([]);
  }
}

function drawQuiet(top, bottom) {
  pen.font = `${width < 560 ? 10 : 12}px ${SANS}`;
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
  const isNarrow = width < 560;
  pen.fillStyle = colours.soft; pen.font = `${isNarrow ? 10 : 11}px ${SANS}`; pen.textAlign = "right";
  pen.fillText((t / SECOND).toFixed(4), gutter - (isNarrow ? 5 : 8), y + 4);
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
  if (hasTexts()) pen.font = laneFont(from);
  const text = side > 0 && hasTexts() ? fitting(event, roomOf(from, event)) : "";
  const x0 = text ? from.x + markOf(from, event) + textGap(from) + 3 + sizeOf(text) : from.x + 9 + side * 6, end = y1;
  const x1 = event.lost ? x0 + (to.x + 9 - side * 6 - x0) * 0.62 : to.x + 9 - side * 6;
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

function path(...points) {
  pen.beginPath();
  points.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

function cross(x, y, size) {
  pen.lineWidth = 2;
  path([x - size, y - size], [x + size, y + size]);
  path([x + size, y - size], [x - size, y + size]);
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
  drop: (x, y) => { pen.lineWidth = 2; pen.strokeRect(x - 4, y - 4, 8, 8); path([x - 6, y + 6], [x + 6, y - 6]); },
  cut: (x, y) => {
    pen.lineWidth = 2;
    path([x - 6, y - 3], [x - 1, y - 3]);
    path([x + 6, y + 3], [x + 1, y + 3]);
    path([x - 2, y + 5], [x + 2, y - 5]);
  },
  deliver: (x, y) => { pen.beginPath(); pen.moveTo(x - 5, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x - 5, y + 5); pen.fill(); },
  client: (x, y) => { pen.lineWidth = 1.5; pen.beginPath(); pen.arc(x, y, 4, 0, 7); pen.stroke(); },
  confirm: (x, y) => { pen.lineWidth = 2.5; path([x - 5, y], [x - 1, y + 4], [x + 5, y - 5]); },
  other: (x, y) => { pen.beginPath(); pen.arc(x, y, 1.8, 0, 7); pen.fill(); },
};
const LOOKS = {
  append: ["append", "ink"], disk: ["disk", "ink"], commit: ["commit", "accent"], apply: ["apply", "ink"],
  role: ["role", null], member: ["role", "soft"], start: ["role", "ink"], says: ["other", "warn"],
  kill: ["stop", "bad"], power: ["stop", "bad"], pause: ["stop", "warn"],
  cut: ["cut", "bad"], free: ["cut", "soft"], link: ["cut", "soft"],
  snapshot: ["snapshot", "mirrored"], install: ["snapshot", "mirrored"], reset: ["snapshot", "bad"], drop: ["drop", "bad"],
  deliver: ["deliver", "accent"], deal: ["other", "soft"], bury: ["deliver", "bad"],
  publish: ["deliver", "ink"], confirm: ["confirm", "accent"], refuse: ["stop", "bad"],
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

function drawEvent(event, y) {
  if (["note", "broken", "healed"].includes(event.what)) return drawAcross(event, y);
  const lane = laneOf(event.at);
  if (!lane) return;
  const [shape, token] = event.what === "link" && !event.up ? ["cut", "bad"] : LOOKS[event.what] || ["other", "soft"];
  pen.globalAlpha = isDim(event) ? 0.14 : 1;
  pen.fillStyle = pen.strokeStyle = token ? colours[token] : termColour(event.term);
  if (["append", "disk", "drop"].includes(event.what)) pen.fillStyle = pen.strokeStyle = termColour(event.term);
  const mark = markOf(lane, event), x = lane.x + mark;
  if (event.what !== "message") SHAPES[shape](x, y);
  if (hasTexts()) {
    pen.font = laneFont(lane);
    pen.fillStyle = event.what === "message" ? colours.soft : colours.ink;
    const text = fitting(event, roomOf(lane, event));
    if (text) halo(text, x + textGap(lane), y + 4);
  }
  pen.globalAlpha = 1;
}

function drawAcross(event, y) {
  const token = event.what === "broken" ? "bad" : event.what === "note" ? "accent" : "soft";
  pen.strokeStyle = colours[token]; pen.lineWidth = event.what === "healed" ? 1 : 2;
  pen.beginPath(); pen.moveTo(gutter, y + 7); pen.lineTo(width, y + 7); pen.stroke();
  pen.font = `600 12.5px ${SANS}`; pen.fillStyle = colours[token];
  const texts = [textOf(event), event.what === "note" ? `Step ${notes.indexOf(event) + 1}` : `${event.number || "A defect"}: broken`];
  halo(texts.find((text) => sizeOf(text) <= width - gutter - 16) || texts[1], gutter + 6, y + 2);
}

// Where in a lane the mark of an event stands, and how much room its text has; a narrow lane saves room.
const isWide = (lane) => lane.w > 100;
const markOf = (lane, event) => (isClient(event.at) ? 10 : isWide(lane) ? 24 : 20);
const textGap = (lane) => (isWide(lane) ? 10 : 8);
const roomOf = (lane, event) => lane.w - markOf(lane, event) - textGap(lane) - 2;

const hasTexts = () => state.row >= 14;
const laneFont = (lane) => `${isWide(lane) ? 12 : 11}px ${SANS}`;

// The longest wording of an event for which a lane has room. Each event keeps it, for a frame has many events.
function fitting(event, room) {
  if (event.room !== room) Object.assign(event, { room, label: longestOf(laneTexts(event), room) });
  return event.label;
}

function longestOf({ all, mayCut }, room) {
  const found = all.find((text) => sizeOf(text) <= room);
  return found !== undefined ? found : mayCut && room > 60 ? clipped(all[0], room) : "";
}

const sizes = new Map();
function sizeOf(text) {
  const key = `${pen.font} ${text}`;
  if (!sizes.has(key)) { if (sizes.size > 20000) sizes.clear(); sizes.set(key, pen.measureText(text).width); }
  return sizes.get(key);
}

function clipped(text, room) {
  const size = sizeOf(text);
  if (size <= room) return text;
  const fits = text.slice(0, Math.max(1, Math.floor((text.length * room) / size) - 2));
  return `${fits.includes(" ") ? fits.slice(0, fits.lastIndexOf(" ")) : fits} …`;
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
  pen.fillStyle = colours.page; pen.fillRect(0, 0, width, TOP - 4);
  pen.strokeStyle = colours.rule; pen.lineWidth = 1;
  pen.beginPath(); pen.moveTo(0, TOP - 4.5); pen.lineTo(width, TOP - 4.5); pen.stroke();
  pen.fillStyle = colours.ink; pen.font = `600 ${width < 560 ? 12 : 13}px ${SANS}`;
  for (const [at, { x, w }] of Object.entries(lanes)) pen.fillText(at !== CLIENTS ? at : sizeOf("clients") < w - 8 ? "clients" : "cl.", x + 5, 20);
  pen.fillStyle = colours.soft; pen.font = `11px ${SANS}`; pen.textAlign = "right";
  pen.fillText(width < 560 ? "s" : "seconds", gutter - 8, 20);
  pen.textAlign = "left";
}
