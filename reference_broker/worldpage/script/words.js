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
const range = (first, last) => (first === last ? `place ${first}` : `places ${first} to ${last}`);
const ROLES = { follower: "follower", pre_vote: "pre-candidate", candidate: "candidate", leader: "leader" };

function roleWords({ role, leader, term }) {
  if (role === "leader") return `leads in term ${term}`;
  if (role === "follower") return leader ? `follows ${leader} in term ${term}` : `knows no leader in term ${term}`;
  return role === "candidate" ? `asks for votes in term ${term}` : `asks whether it would get votes (term ${term})`;
}

function messageWords({ kind, term, first, last, ok, names }) {
  switch (kind) {
    case "AppendEntries": return ok ? `${names || "entries"} for ${range(first, last)}` : `no entries; committed up to place ${last}`;
    case "AppendReply": return ok ? `${names || "the log"} on my disk, up to place ${last}` : `refused; I want place ${first}`;
    case "PreVoteRequest": return `would you vote for me?`;
    case "PreVoteReply": return ok ? "I would vote for you" : "I would not vote for you";
    case "VoteRequest": return `vote for me in term ${term}`;
    case "VoteReply": return ok ? `you have my vote in term ${term}` : `no vote in term ${term}`;
    case "InstallSnapshot": return `snapshot up to place ${last}`;
    case "InstallReply": return `snapshot up to place ${last} received`;
    case "Heartbeat": return "am I still the leader?";
    case "HeartbeatReply": return "you are still the leader for me";
    case "TimeoutNow": return "stand for election now";
    case "LeaderSynced": return `${names || "the log"} on my disk, up to place ${last}`;
    case "propose": return "a request for the leader";
    default: return (kind || "").replace(/_/g, " ");
  }
}

function memberWords({ begins, last, snapshot, term }) {
  return `${begins ? "begins" : "stands"} with a log up to place ${last}${snapshot ? `, snapshot up to ${snapshot}` : ""}, term ${term}`;
}

const TEXTS = {
  world: () => "the events begin", note: (e) => e.title, healed: () => "all trouble ends",
  broken: (e) => `${e.number || "A defect"}: ${e.statement}`,
  start: (e) => `starts${nth(e.boot)}`, kill: () => "is killed", power: () => "loses power",
  pause: (e) => `stands still until ${seconds(e.until)}`, trouble: (e) => `trouble: ${e.name}`,
  cut: (e) => `is no longer heard by ${e.to}`, free: (e) => `is heard by ${e.to} again`,
  link: (e) => (e.up ? `has a link with ${e.to}` : `has lost its link with ${e.to}`), says: (e) => e.words,
  member: (e) => (e.log === null ? roleWords(e) : memberWords(e)),
  role: (e) => (e.isOfMembers ? `counts on the members ${e.members}` : roleWords(e)),
  append: (e) => `writes ${e.names || "an entry"} at place ${e.place}`,
  disk: (e) => `has ${e.names || "its log"} on disk, up to place ${e.place}`,
  vote: (e) => `term ${e.term}` + (e.vote ? `, vote for ${e.vote}` : "") + " on disk",
  drop: (e) => `drops its log from place ${e.place} on`, reset: (e) => `goes on behind the snapshot up to place ${e.place}`,
  snapshot: (e) => `snapshot up to place ${e.place} on disk`, install: (e) => `leader's snapshot up to place ${e.place} on disk`,
  commit: (e) => `knows: ${e.names || "the log"} committed, up to place ${e.place}`,
  apply: (e) => `applies ${e.names || "entries"}, up to place ${e.place}`, take: (e) => `takes over the state at place ${e.place}`,
  leave: () => "deletes its member",
  message: (e) => `to ${e.to}: ${messageWords(e)}`,
  owner: () => "owns this queue", command: (e) => e.words, bury: (e) => `takes ${messageNames(e.messages)} out of the queue (${deathOf(e)})`,
  deal: (e) => `deals ${messageNames(e.messages)} to ${e.to}, not local`,
  deliver: (e) => `delivers ${messageNames(e.messages)} to ${e.to}${e.again ? " again" : ""}`,
  publish: (e) => `publishes ${messageNames(e.messages)}`, confirm: (e) => `hears that ${messageNames(e.messages)} ${is(e)} confirmed`,
  refuse: (e) => `hears that ${messageNames(e.messages)} ${is(e)} refused`, get: (e) => `gets ${messageNames(e.messages)}${e.again ? " again" : ""}`,
  settle: (e) => `${e.words} ${messageNames(e.messages)}`, client: (e) => e.words,
};
const is = ({ messages }) => (messages.length === 1 ? "is" : "are");
const deathOf = ({ words }) => (words || "").replace(/_/g, " ");
const textOf = (event) => TEXTS[event.what](event);

// In a lane: the same from the longest wording to the shortest; the picture takes the first that fits.
const SAYS = {
  AppendEntries: (e) => (e.ok ? [`${e.names} for ${range(e.first, e.last)}`, e.names] : [`no entries, committed to ${e.last}`, `committed to ${e.last}`, "no entries", "empty"]),
  AppendReply: (e) => (e.ok ? [`${e.names} on my disk`, `${e.names} on disk`, `has ${e.names}`] : [`I want place ${e.first}`, `want ${e.first}`]),
  LeaderSynced: (e) => [`${e.names} on my disk`, `has ${e.names}`],
  PreVoteRequest: () => ["would you vote for me?", "vote for me?", "vote?"],
  PreVoteReply: (e) => (e.ok ? ["I would vote for you", "I would", "yes"] : ["I would not vote for you", "I would not", "no"]),
  VoteRequest: (e) => [`vote for me in term ${e.term}`, `vote, term ${e.term}`, "vote!"],
  VoteReply: (e) => (e.ok ? ["you have my vote", "my vote", "yes"] : ["no vote for you", "no vote", "no"]),
  InstallSnapshot: (e) => [`snapshot up to place ${e.last}`, `snapshot ${e.last}`], InstallReply: (e) => [`snapshot up to ${e.last} received`, "received"],
  Heartbeat: () => ["am I still the leader?", "still leader?"], HeartbeatReply: () => ["you are still the leader", "still leader"],
  TimeoutNow: () => ["stand for election now", "stand now"], propose: () => ["a request for the leader", "a request", "asks"],
};
const answerTexts = ({ at, messages }, word) => [`${at}: ${messageNames(messages)} ${word}`, `${messageNames(messages)} ${word}`, messageNames(messages)];
const IN_LANE = {
  message: (e) => {
    const all = SAYS[e.kind] ? SAYS[e.kind](e) : [messageWords(e)];
    return [...all.map((words) => `→ ${e.to}: ${words}`), all[all.length - 1]]; // a narrow lane has the arrow, too
  },
  append: (e) => [`${e.names} at place ${e.place}`, `${e.names} at ${e.place}`, e.names], disk: (e) => [`${e.names} on disk`, e.names],
  commit: (e) => [`${e.names} committed`, e.names], apply: (e) => [`${e.names} applied`, e.names],
  drop: (e) => [`drops from place ${e.place} on`, `drops from ${e.place}`, `−${e.place}`],
  reset: (e) => [`goes on behind place ${e.place}`, `behind ${e.place}`, `${e.place}`], snapshot: (e) => [`snapshot to place ${e.place}`, `snapshot ${e.place}`, `${e.place}`],
  install: (e) => [`snapshot to place ${e.place}`, `snapshot ${e.place}`, `${e.place}`], take: (e) => [`takes over ${e.place}`, `${e.place}`],
  vote: (e) => [`term ${e.term}${e.vote ? `, for ${e.vote}` : ""}`, `t. ${e.term}`],
  role: (e) => (e.isOfMembers ? ["has new members", "members"] : [roleWords(e), ROLE_SHORT[e.role](e), `${e.term}`]),
  member: (e) => (e.log === null ? [roleWords(e)] : [`log to place ${e.last}`, `log to ${e.last}`]), leave: () => ["deletes its log", "leaves"],
  cut: (e) => [`cut to ${e.to}`, e.to], free: (e) => [`free to ${e.to}`, e.to], link: (e) => [`${e.up ? "link with" : "no link with"} ${e.to}`, `${e.up ? "link" : "no link"}: ${e.to}`, e.to],
  trouble: (e) => [`trouble: ${e.name}`, e.name, e.name.split(" ")[0]], pause: () => ["stands still"], kill: () => ["is killed"], power: () => ["loses power"], start: (e) => [`starts${nth(e.boot)}`, "starts"],
  deliver: (e) => [`${messageNames(e.messages)} to ${e.to}${e.again ? " again" : ""}`, `${messageNames(e.messages)} to ${e.to}`, messageNames(e.messages)],
  deal: (e) => [`${messageNames(e.messages)} to ${e.to}, not local`, `${messageNames(e.messages)} to ${e.to}`, messageNames(e.messages)],
  bury: (e) => [`${messageNames(e.messages)}: ${deathOf(e)}`, `${messageNames(e.messages)} is dead`, messageNames(e.messages)],
  publish: (e) => [`${e.at} publishes ${messageNames(e.messages)}`, `${e.at}: ${messageNames(e.messages)}`, messageNames(e.messages)],
  confirm: (e) => answerTexts(e, "confirmed"), refuse: (e) => answerTexts(e, "refused"),
  get: (e) => [`${e.at} gets ${messageNames(e.messages)}${e.again ? " again" : ""}`, `${e.at} gets ${messageNames(e.messages)}`, messageNames(e.messages)],
  client: (e) => [e.words, e.words.split(/: | as |, /)[0], e.words.split(" ").slice(0, 2).join(" ")].map((words) => `${e.at} ${words}`),
  settle: (e) => [`${e.at} ${e.words} ${messageNames(e.messages)}`, `${e.at}: ${messageNames(e.messages)}`, messageNames(e.messages)],
};
const ROLE_SHORT = {
  leader: (e) => `leads term ${e.term}`, follower: (e) => (e.leader ? `follows ${e.leader}` : "no leader"),
  candidate: (e) => `stands, term ${e.term}`, pre_vote: () => "asks first",
};
// Words of the simulator's own (a trouble, a log line) have no shorter wording and may be cut.
const laneTexts = (event) => (IN_LANE[event.what] ? { all: IN_LANE[event.what](event), mayCut: false } : { all: [textOf(event)], mayCut: true });

function fullText(event) {
  const text = textOf(event);
  if (event.what === "message") {
    const arrives = event.got === null ? " It is still on its way." : ` It arrives after ${((event.got - event.t) / 1000).toFixed(2)} ms.`;
    return `sends ${event.to} “${messageWords(event)}”.${event.lost ? " The message is lost." : arrives}`;
  }
  const entry = ["append", "apply"].includes(event.what) ? entryOf(event) : null;
  if (entry && entry.words) return `${text}: ${entry.words}`;
  if (event.what === "broken") return `${text}. ${event.seen}`;
  if (["publish", "get", "confirm", "refuse", "settle"].includes(event.what)) return `${text} (queue ${event.queue})`;
  return text;
}
