// Events in words: a sentence for the panel, and a few words for a lane.
"use strict";

const seconds = (t) => (t / SECOND).toFixed(6);
const entryOf = (event) => ENTRIES.get(`${event.group} ${event.place} ${event.term}`);
const listed = (messages) => {
  if (!messages || !messages.length) return "";
  const all = messages.length > 2 && messages[messages.length - 1] - messages[0] === messages.length - 1;
  return all ? `${messages[0]} to ${messages[messages.length - 1]}` : messages.slice(0, 12).join(", ") + (messages.length > 12 ? " …" : "");
};
const plural = (messages) => (messages && messages.length === 1 ? "message" : "messages");
function nth(count) {
  if (!count || count === 1) return "";
  const isTeen = count % 100 > 10 && count % 100 < 14, ending = ["th", "st", "nd", "rd"][isTeen ? 0 : count % 10] || "th";
  return `, for the ${count}${ending} time`;
}
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

function memberWords({ begins, last, snapshot, term }) {
  return `${begins ? "begins" : "stands"} with log up to ${last}${snapshot ? `, snapshot ${snapshot}` : ""}, term ${term}`;
}

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
  cut: (e) => `cut to ${e.to}`, free: (e) => `free to ${e.to}`, pause: () => "stands still",
  link: (e) => `${e.up ? "link" : "no link"}: ${e.to}`, message: (e) => `→ ${e.to}: ${messageWords(e)}`,
  append: (e) => `write ${e.place}: ${e.words || ""}`, disk: (e) => `disk: to ${e.place}`, drop: (e) => `drop from ${e.place}`,
  commit: (e) => `commit ${e.place}`, apply: (e) => `apply ${e.place}`,
  vote: (e) => `term ${e.term}${e.vote ? `, for ${e.vote}` : ""}`,
  member: (e) => (e.log === null ? roleWords(e) : `log to ${e.last}`),
};
const laneText = (event) => (IN_LANE[event.what] || TEXTS[event.what])(event);

function fullText(event) {
  const text = textOf(event);
  if (event.what === "message") {
    const arrives = event.got === null ? " It is still on its way." : ` It arrives after ${((event.got - event.t) / 1000).toFixed(2)} ms.`;
    return `sends ${event.to} “${messageWords(event)}”.${event.lost ? " The message is lost." : arrives}`;
  }
  if (event.what === "apply" && entryOf(event)) return `${text}: ${entryOf(event).words}`;
  if (event.what === "broken") return `${text}. ${event.seen}`;
  if (["publish", "get", "confirm", "refuse", "settle"].includes(event.what)) return `${text} (${plural(event.messages)}, ${event.queue})`;
  return text;
}
