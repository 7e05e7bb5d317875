// Moving through the events, choosing what is shown, and the beginning of the page.
"use strict";

function goTo(index, { scroll = true } = {}) {
  state.at = Math.max(0, Math.min(events.length - 1, index));
  showMoment();
  const y = ys[placeOf(state.at)] ?? 0;
  const isInView = y >= chart.scrollTop + TOP + 30 && y <= chart.scrollTop + chart.clientHeight - 40;
  const isNote = (events[state.at] || {}).what === "note"; // a note is about what stands above it
  if (scroll && (!isInView || isNote)) chart.scrollTop = Math.max(0, y - heightInView() * (isNote ? 0.65 : 0.35));
  ask();
}

// How much of the picture the window shows, or could show if the picture is below it.
function heightInView() {
  const inView = innerHeight - chart.getBoundingClientRect().top;
  return inView > 200 ? Math.min(inView, chart.clientHeight) : chart.clientHeight;
}

const goBy = (count) => goTo((shown[Math.max(0, Math.min(shown.length - 1, placeOf(state.at) + count))] || { index: 0 }).index);
const goToNote = (step) => {
  const note = notes[Math.max(0, Math.min(notes.length - 1, noteAt() + step))];
  if (note && note.shows !== state.group && groups.includes(note.shows)) { byId("group").value = note.shows; choose({ group: note.shows }); }
  if (note) goTo(note.index);
};
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
  showExtent();
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
  const parts = [`at=${state.at}`, state.group !== groups[0] && `queue=${state.group || "all"}`,
    state.follow !== null && `message=${state.follow}`, state.theme && `theme=${state.theme}`];
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
  element("li", {}, "Lines are messages; their slope is the delay; dashed with a cross: lost. Blue: entries, yellow: votes, grey: answers"));
}

const count = (number) => number.toLocaleString("en");

// How many events the page has, and how many of them the picture shows.
function showExtent() {
  const last = events[events.length - 1], first = events.find((each) => each.what !== "world" && each.what !== "member") || last;
  const all = head.total > events.length ? ` of ${count(head.total)}` : "", hosts = `${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`;
  const chosen = `${state.detail === "main" ? "the main ones" : "those"} of ${state.group ? `the queue “${state.group}”` : "all queues"}`;
  byId("extent").textContent = `${count(events.length)}${all} events, from ${seconds(first.t)} to ${seconds(last.t)} seconds, ${hosts}. The picture shows ${count(shown.length)} of them: ${chosen}.`;
}

// The queue of the message that a text names.
function groupOf(seen) {
  const [, number] = seen.match(/message (\d+)/) || [], published = events.find((each) => each.what === "publish" && each.messages.includes(Number(number)));
  return published && groups.find((group) => plainName(group) === published.queue);
}

function startPage() {
  if (!events.length) { byId("extent").textContent = "No events"; return; }
  const broken = events.find((each) => each.what === "broken");
  byId("again").hidden = !head.command;
  if (broken) {
    byId("broken").hidden = false;
    byId("broken").querySelector("b").textContent = `${broken.number || "A defect"}: ${broken.statement}`;
    byId("broken").querySelector("span").textContent = `${seconds(broken.t)} s: ${broken.seen}`;
    byId("broken").querySelector("button").addEventListener("click", () => goTo(broken.index));
  }
  const named = broken && (groups.find((group) => broken.seen.includes(plainName(group))) || groupOf(broken.seen));
  state.group = named || (notes.length && groups.find((group) => group === notes[0].shows)) || groups.find((group) => group !== "metadata") || groups[0] || "";
  byId("group").append(...groups.map((group) => element("option", { value: group }, group)), element("option", { value: "" }, "all"));
  state.at = broken ? broken.index : notes.length ? notes[0].index : 0;
  readState();
  byId("group").value = state.group;
  if (state.follow !== null) byId("follow").value = state.follow;
  listen(broken);
  measure();
  showTheme(state.theme);
  layOut();
  showExtent();
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
  for (const list of [byId("near"), byId("way")]) {
    list.addEventListener("click", (event) => {
      const item = event.target.closest("[data-event]");
      if (item) goTo(Number(item.dataset.event));
    });
  }
  addEventListener("resize", () => { measure(); ask(); });
  addEventListener("beforeprint", () => { root.dataset.theme = "light"; readColours(); draw(); }); // paper is white
  addEventListener("afterprint", () => showTheme(state.theme));
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
