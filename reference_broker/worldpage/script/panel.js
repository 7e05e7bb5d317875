// The moment beside the picture: the logs, the events around it, the way of the message, the step of the story.
"use strict";

const placeOf = (index) => {
  let low = 0, high = shown.length;
  while (low < high) { const middle = (low + high) >> 1; if (shown[middle].index < index) low = middle + 1; else high = middle; }
  return Math.min(low, Math.max(0, shown.length - 1));
};

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "term") made.style.setProperty("--term", `var(--${termToken(value)})`);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const ENTRIES_SHOWN = 8;

// An entry as a box: its message or its word, and below it the place.
const entryBox = (entry, place, attributes) => element("span", attributes, entry ? nameOf(entry, place) : "·", element("small", {}, String(place)));

function logOf(at, member, host) {
  const isDown = host && !host.up, isStill = host && host.until > events[state.at].t;
  const made = element("div", { class: `log${isDown ? " down" : ""}`, term: member.term });
  const who = isDown ? "down" : isStill ? "stands still" : `${ROLES[member.role] || member.role} in term ${member.term}`;
  made.append(element("div", { class: "who" }, element("b", {}, at), ` ${who}`));
  if (member.isUnknown) { made.append(element("div", { class: "says" }, "what is in the log is not recorded")); return made; }
  const boxes = element("div", { class: "entries" });
  const first = Math.max(member.snapshot + 1, member.last - ENTRIES_SHOWN + 1);
  if (first > 1) boxes.append(element("span", { class: "entry cut" }, first === member.snapshot + 1 ? `▣ ${member.snapshot}` : "…"));
  for (let place = first; place <= member.last; place++) {
    const term = termAt(member, place), entry = ENTRIES.get(`${state.group || groups[0]} ${place} ${term}`);
    const classes = ["entry", place > member.disk ? "lost" : "", place <= member.commit ? "done" : "", place <= member.applied ? "used" : "",
      state.follow !== null && entry && entry.messages.includes(state.follow) ? "followed" : ""].filter(Boolean).join(" ");
    const title = `place ${place}, term ${term}: ${entry ? entry.words : "written before this page begins"}`;
    boxes.append(entryBox(entry, place, { class: classes, title, term }));
  }
  if (member.last === 0) boxes.append(element("span", { class: "entry cut" }, "empty"));
  made.append(boxes);
  const above = range(member.disk + 1, member.last), isWhole = member.last <= member.disk;
  if (isDown) {
    const maybe = isWhole ? "" : `; ${above} may be lost`;
    made.append(element("div", { class: "says" }, `its disk has the log up to place ${member.disk}${maybe}`));
  } else {
    const lost = isWhole ? "a loss of power takes nothing" : element("b", {}, `a loss of power takes ${above}`);
    made.append(element("div", { class: "says" }, `${member.commit ? `committed up to place ${member.commit}, applied up to ${member.applied}` : "has not heard of a commit yet"}; `, lost));
  }
  return made;
}

function showLogs(now) {
  const group = state.group || groups[0];
  const logs = nodes.filter((at) => now.members[`${at} ${group}`]).map((at) => logOf(at, now.members[`${at} ${group}`], now.hosts[at]));
  const nobody = element("p", { class: "soft" }, "No node has a member of this queue.");
  byId("logs").replaceChildren(element("div", { class: "all-copies" }, ...copiesOf(now, group)), ...(logs.length ? logs : [nobody]));
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
  const rows = [...found].map(([key, disks]) => [key.split(" ").map(Number), disks])
    .sort(([one], [other]) => one[0] - other[0] || one[1] - other[1]).slice(-5);
  return rows.map(([[place, term], disks]) => {
    const entry = ENTRIES.get(`${group} ${place} ${term}`), { messages, words } = entry || { messages: [], words: "" };
    const about = messages.length ? `${plural(messages)} ${listed(messages)}` : (words || "").slice(0, 28);
    const count = `${disks.length} of ${voters.length} disks`, enough = disks.length >= need;
    return element("p", { class: "copies" }, entryBox(entry, place, { class: `entry${enough ? " done" : ""}`, term }),
      ` ${about ? `${about}, ` : ""}term ${term}: on ${count}${disks.length ? ` (${disks.join(", ")})` : ""}, ${enough ? "a majority" : "no majority"}`);
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
  byId("when").textContent = `At ${seconds(event.t)} s, event ${count(place + 1)} of ${count(shown.length)} shown`;
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
