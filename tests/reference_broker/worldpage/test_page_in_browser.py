"""The page in a real browser: what it says of the logs, how a reader moves through it, and that it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reference_broker.sim.queues import GRAVEYARD
from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.runs import run_world
from reference_broker.sim.scenes.catalogue import SCENES, events_of
from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.members import Members, MemberView, take
from reference_broker.worldpage.node_log import events_of as log_events
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.walk import walks_of
from reference_broker.worldpage.window import EVENTS_MAX, window
from tests.reports.browser.browsing import MARKS, Browser
from tests.reports.browser.devtools import Tab

pytestmark = MARKS
SIZE = (1280, 900)
WALKS = walks_of(Path(__file__).parents[3].joinpath("docs", "local-delivery.md").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scene() -> str:
    return page(events_of("cut-off-leader"))


@pytest.fixture(scope="module")
def world() -> list[WorldEvent]:
    """A long world of much trouble, with its head."""
    recorder = WorldRecorder()
    run_world(77, 12_000, recorder=recorder)
    return [head_of(recorder.events, title="World 77", text="", command=""), *recorder.events]


def shown(member: MemberView) -> dict[str, Any]:
    """A member as the script of the page keeps it."""
    return {
        "role": member.role, "leader": member.leader, "term": member.term, "members": member.members,
        "snapshot": member.snapshot, "runs": member.runs, "last": member.last, "disk": member.disk,
        "commit": member.commit, "applied": member.applied, "isUp": member.is_up,
    }  # fmt: skip


def test_the_logs_of_the_slider_are_those_of_the_world(browser: Browser, world: list[WorldEvent]) -> None:
    """The recorder's tests compare the fold with the world; this compares the script with the fold."""
    events = window(world, first="0.5")
    places = [*range(0, len(events), 997), len(events) - 1, 3, len(events) // 2]
    found = browser.ask(page(events), f"return {places}.map((at) => worldPage.stateAfter(at).members);", size=SIZE)
    for at, members in zip(places, found, strict=True):
        folded: Members = {}
        for event in events[: at + 1]:
            take(folded, event)
        assert members == {f"{host} {group}": shown(member) for (host, group), member in folded.items()}


def test_a_reader_goes_through_the_story(browser: Browser, scene: str) -> None:
    """By button, and by key; the texts, the slider and the logs follow."""
    script = """
      const told = [];
      const text = (name) => document.querySelector(name).textContent;
      const look = () => told.push([text("#note-place"), Number(document.querySelector("#moment").value)]);
      const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      look();
      document.querySelector("#later-note").click(); look();
      press("ArrowRight"); look();
      press("ArrowLeft"); look();
      while (!document.querySelector("#later-note").disabled) document.querySelector("#later-note").click();
      return [told, text("#note-title"), document.querySelector("#logs").innerText];
    """
    told, title, logs = browser.ask(scene, script, size=SIZE)
    assert [place for place, _ in told] == ["Step 1 of 9", "Step 2 of 9", "Step 3 of 9", "Step 2 of 9"]
    assert told[0][1] < told[1][1] < told[2][1] and told[3] == told[1]
    assert title == "All five logs are equal, and no confirmed message was lost"
    assert logs.count("takes nothing") == 5


def test_the_page_says_why_message_2_is_not_confirmed(browser: Browser, scene: str) -> None:
    script = """
      const notes = worldPage.events.filter((each) => each.what === "note");
      worldPage.goTo(notes.find((each) => each.title.startsWith("Message 2 is on two disks")).index);
      return [...document.querySelectorAll(".copies")].map((each) => each.textContent);
    """
    told = browser.ask(scene, script, size=SIZE)
    assert any("message 1" in each and each.endswith(", a majority") for each in told)
    assert any("message 2" in each and "2 of 5 disks" in each and each.endswith(", no majority") for each in told)


def test_a_legend_explains_messages_places_and_terms_and_one_count_is_told(browser: Browser, scene: str) -> None:
    """The legend is always there, above the picture; the slider counts what the picture shows."""
    script = """
      const rect = (name) => document.querySelector(name).getBoundingClientRect();
      return [document.querySelector("#terms").innerText, rect("#terms").bottom <= rect("#chart").top,
        document.querySelector("#extent").textContent, document.querySelector("#when").textContent,
        worldPage.events.length, worldPage.shown().length];
    """
    legend, is_above, extent, when, events, shown = browser.ask(scene, script, size=SIZE)
    assert all(word in legend for word in ("m1", "place (index)", "term")) and is_above
    assert f"{events} events" in extent and f"shows {shown} of them" in extent and f"of {shown} shown" in when


def story(name: str) -> list[WorldEvent]:
    """The events of a scene or of a walk."""
    return events_of(name) if name in SCENES else WALKS[name].events


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", [*SCENES, *WALKS])
def test_no_label_of_a_story_is_cut_or_over_another(browser: Browser, name: str, width: int) -> None:
    """All texts of the picture, as they are drawn: each is whole, stays in its lane, and leaves the others alone."""
    script = """
      const canvas = document.querySelector("#chart canvas"), pen = canvas.getContext("2d");
      const chart = document.querySelector("#chart"), fillText = pen.fillText.bind(pen);
      const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const wrong = [];
      let texts = [];
      pen.fillText = (text, x, y) => {
        const w = pen.measureText(text).width, left = x - w * ({ right: 1, center: 0.5 }[pen.textAlign] || 0);
        texts.push([text, left, left + w, pen.getTransform().f + y]);
        fillText(text, x, y);
      };
      for (let top = 0; top < chart.scrollHeight; top += chart.clientHeight - 60) {
        texts = [];
        chart.scrollTop = top;
        await frame();
        for (const [text, left, right, y] of texts) {
          if (text.includes("…") || left < 0 || right > chart.clientWidth) wrong.push(`cut: ${text}`);
          for (const [other, from, to, below] of texts) {
            const meets = left < to - 1 && from < right - 1 && Math.abs(y - below) < 9;
            if (meets && text < other && y > 40) wrong.push(`${text} over ${other}`);
          }
        }
      }
      return wrong;
    """
    assert browser.ask(page(story(name)), script, size=(width, 900)) == []


def test_a_step_shows_the_queue_that_it_is_about(browser: Browser) -> None:
    """The dead letter is in another queue than the queue in which the message died."""
    script = """
      const found = [];
      const ask = (name) => document.querySelector(name);
      const look = () => found.push([ask("#group").value, ask("#logs").innerText]);
      look();
      while (!ask("#later-note").disabled) ask("#later-note").click();
      look();
      return found;
    """
    first, last = browser.ask(page(events_of("poison-message")), script, size=SIZE)
    assert first[0] == "work" and last[0] == GRAVEYARD
    assert "message 1" in last[1] and "message 2" not in last[1]


def test_on_paper_the_picture_is_as_wide_as_its_frame_and_light(browser: Browser, scene: str) -> None:
    """A browser prints without asking the script for another size."""

    async def look(tab: Tab) -> list[Any]:
        await tab.resize(*SIZE)
        await tab.open(f"{browser.file(scene).as_uri()}#theme=dark")
        await tab.ask('dispatchEvent(new Event("beforeprint"))')
        await tab.call("Emulation.setEmulatedMedia", media="print")
        script = """(() => {
          const canvas = document.querySelector("#chart canvas"), chart = document.querySelector("#chart");
          canvas.style.width = "3000px";
          const [r, g, b] = canvas.getContext("2d").getImageData(2, canvas.height - 3, 1, 1).data;
          return [canvas.getBoundingClientRect().width <= chart.clientWidth, [r, g, b]];
        })()"""
        found: list[Any] = await tab.ask(script)
        await tab.call("Emulation.setEmulatedMedia", media="")
        return found

    assert browser.run(look) == [True, [255, 255, 255]]


def test_a_message_is_followed_from_publish_to_settle(browser: Browser, world: list[WorldEvent]) -> None:
    settled = next(each.fields["messages"][0] for each in world if each.what == "settle")
    script = f"""
      const field = document.querySelector("#follow");
      document.querySelector("#group").value = "";
      document.querySelector("#group").dispatchEvent(new Event("change"));
      field.value = "{settled}";
      field.dispatchEvent(new Event("input"));
      return [[...worldPage.wayOf({settled})].map((at) => worldPage.events[at].what), location.hash,
        document.querySelector("#way h2").textContent, document.querySelectorAll("#way li").length];
    """
    kinds, address, heading, items = browser.ask(page(window(world)), script, size=SIZE)
    for what in ("publish", "append", "disk", "commit", "apply", "confirm", "deliver", "get", "settle"):
        assert what in kinds, what
    assert f"message={settled}" in address and str(settled) in heading and items > 9


def test_keys_move_the_moment(browser: Browser, scene: str) -> None:
    script = """
      const at = () => Number(document.querySelector("#moment").value);
      const press = (key, target = document.body) =>
        target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      const found = [];
      for (const key of ["Home", "ArrowDown", "ArrowDown", "PageDown", "ArrowUp", "End"]) {
        press(key);
        found.push(at());
      }
      press("/");
      found.push(document.activeElement.id);
      press("Home", document.activeElement);
      found.push(at());
      return [found, Number(document.querySelector("#moment").max)];
    """
    found, last = browser.ask(scene, script, size=SIZE)
    assert found == [0, 1, 2, 12, 11, last, "follow", last]


def test_a_broken_invariant_that_names_a_message_is_shown_in_the_queue_of_the_message(browser: Browser) -> None:
    """A reader who sees another queue sees nothing of the bug."""
    events = events_of("poison-message")
    other = WorldEvent(events[-1].t, "c1", "publish", {"queue": GRAVEYARD, "messages": [9]})
    fields = {"number": "I23", "statement": "a message comes once", "seen": "c2 got message 9 again"}
    broken = WorldEvent(events[-1].t, "", "broken", fields)
    script = 'return document.querySelector("#group").value;'
    assert browser.ask(page([*events, other, broken]), script, size=SIZE) == GRAVEYARD


def test_the_broken_invariant_is_the_first_thing_a_reader_sees(browser: Browser) -> None:
    events = events_of("killed-leader")
    seen = "group orders: node 2 commits entry 3"
    broken = WorldEvent(events[-1].t, "", "broken", {"number": "I5", "statement": "an entry is on disks", "seen": seen})
    script = """
      return [document.querySelector("#broken").innerText, document.querySelector("#now").textContent];
    """
    banner, now = browser.ask(page([*events, broken]), script, size=SIZE)
    assert "I5: an entry is on disks" in banner and seen in banner
    assert "I5" in now and seen in now


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, scene: str, width: int) -> None:
    script = """
      const right = (each) => each.getBoundingClientRect().right;
      const wide = [...document.querySelectorAll("body *")].filter((each) => right(each) > innerWidth + 1);
      return [document.documentElement.scrollWidth, wide.map((each) => each.id || each.className || each.tagName)];
    """
    found, wide = browser.ask(scene, script, size=(width, 900))
    assert found <= width and wide == []


@pytest.mark.parametrize(("theme", "colour"), [("dark", [20, 24, 29]), ("light", [255, 255, 255])])
def test_the_theme_is_what_the_reader_chooses(browser: Browser, scene: str, theme: str, colour: list[int]) -> None:
    """The canvas, too: its colours are read anew when the reader chooses a theme."""
    script = f"""
      const theme = document.querySelector("#theme");
      theme.value = "{theme}";
      theme.dispatchEvent(new Event("change"));
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const canvas = document.querySelector("#chart canvas");
      const pixel = [...canvas.getContext("2d").getImageData(2, canvas.height - 3, 1, 1).data].slice(0, 3);
      return [pixel, getComputedStyle(document.body).backgroundColor, location.hash];
    """
    pixel, body, address = browser.ask(scene, script, size=SIZE)
    assert pixel == colour
    assert body == f"rgb({', '.join(map(str, colour))})"
    assert f"theme={theme}" in address


def test_the_page_asks_nobody_for_anything(browser: Browser, scene: str) -> None:
    file = browser.file(scene)

    async def look(tab: Tab) -> list[str]:
        await tab.open(file.as_uri())
        return tab.requests

    assert browser.run(look) == [file.as_uri()]


def test_a_frame_of_a_full_page_draws_only_what_is_in_view(browser: Browser, world: list[WorldEvent]) -> None:
    """Work per frame depends on the window, not on the world: calls are counted, for time depends on the machine."""
    events = (world[1:] * (1 + EVENTS_MAX // len(world)))[:EVENTS_MAX]
    ordered = [each._replace(t=float(at) / 1000) for at, each in enumerate(events)]
    script = """
      const pen = document.querySelector("#chart canvas").getContext("2d");
      const chart = document.querySelector("#chart");
      const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      document.querySelector("#group").value = "";
      document.querySelector("#group").dispatchEvent(new Event("change"));
      await frame();
      let calls = 0;
      for (const name of ["stroke", "fill", "fillRect", "fillText", "strokeText", "strokeRect"]) {
        const call = pen[name].bind(pen);
        pen[name] = (...given) => { calls += 1; call(...given); };
      }
      const found = [];
      for (const share of [0.1, 0.4, 0.7, 1]) {
        chart.scrollTop = share * chart.scrollHeight;
        calls = 0;
        await frame();
        found.push(calls);
      }
      return [worldPage.shown().length, found];
    """
    count, calls = browser.ask(page(ordered), script, size=SIZE)
    assert count > EVENTS_MAX * 0.9
    assert all(0 < each < 3000 for each in calls), calls


def test_what_is_not_recorded_is_not_shown_as_empty(browser: Browser) -> None:
    """Logs of a running cluster tell who leads, and nothing of entries."""
    lines = "2026-11-30 03:58:42,499 INFO reference_broker.node.replication.ticks group a1: leader, leader 1, term 7\n"
    script = """
      worldPage.goTo(worldPage.events.length - 1);
      return document.querySelector("#logs").innerText;
    """
    said = browser.ask(page(log_events({"n1": lines})), script, size=SIZE)
    assert "leader in term 7" in said and "not recorded" in said and "empty" not in said


def test_a_page_without_events_says_so(browser: Browser) -> None:
    assert browser.ask(page([]), 'return document.querySelector("#extent").textContent;', size=SIZE) == "No events"
