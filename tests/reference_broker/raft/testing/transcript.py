"""Messages in one line each, and transcripts that are replayed command by command."""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    LeaderSynced,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)


def sketch(message: Message) -> str:
    """A message in one line."""
    name = type(message).__name__
    match message:
        case AppendEntries():
            entries = " ".join(f"{entry.index}@{entry.term}" for entry in message.entries)
            prev = f"{message.prev_index}@{message.prev_term}"
            return f"{name} term {message.term} prev {prev} commit {message.commit} [{entries}]"
        case AppendReply():
            verdict = "fits" if message.success else "does not fit"
            synced = f"{message.synced_index}@{message.synced_term}"
            return f"{name} term {message.term} {verdict}, next {message.next_index}, synced {synced}"
        case PreVoteRequest() | VoteRequest():
            return f"{name} term {message.term} log {message.last_index}@{message.last_term}"
        case PreVoteReply() | VoteReply():
            return f"{name} term {message.term} {'granted' if message.granted else 'refused'}"
        case InstallSnapshot():
            last = " last" if message.last else ""
            at = f"{message.index}@{message.index_term}"
            return f"{name} term {message.term} up to {at} chunk {message.number}{last}"
        case InstallReply():
            state = "done" if message.done else f"got {message.number}"
            return f"{name} term {message.term} up to {message.index} {state}"
        case Heartbeat() | HeartbeatReply():
            return f"{name} term {message.term} round {message.round}"
        case LeaderSynced():
            return f"{name} term {message.term} up to {message.index}"
        case TimeoutNow():
            return f"{name} term {message.term}"


def replay(transcript: str, answer: Callable[[str], str]) -> str:
    """A transcript with every answer given anew.

    Blocks are separated by empty lines. A block is comments (``# ...``), commands, a line ``----`` and what they
    answered. Comments and commands stay; what follows ``----`` is replaced by what ``answer`` says to each command.
    """
    blocks = []
    for block in transcript.strip().split("\n\n"):
        head = block.split("\n----", 1)[0].splitlines()
        answers = [answer(line) for line in head if line and not line.startswith("#")]
        said = "\n".join(text for text in answers if text)
        blocks.append("\n".join([*head, *(["----"] if answers else []), *([said] if said else [])]))
    return "\n\n".join(blocks) + "\n"
