// The list of runs: filters act at once, runs are picked and compared, and keys lead through it. The list is complete
// without this script.
"use strict";
(() => {
  const PARTS = ["chosen", "problems", "found"];
  const TYPING_MS = 200;
  const NARROW_PX = 640; // below this width the charts are folded, so that the list is in sight
  const PICKS = "perftest picks";
  const form = document.getElementById("filters");
  const compareForm = document.getElementById("compare");
  const help = document.getElementById("help");
  const element = (id) => document.getElementById(id);
  const rows = () => [...document.querySelectorAll("#found tr[data-name]")];
  let picks = JSON.parse(sessionStorage.getItem(PICKS) || "[]");
  let asked = 0;

  // -- Filters --------------------------------------------------------------------------------------------------------

  function wanted() {
    const pairs = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(pairs).toString();
    return query ? `/?${query}` : "/";
  }

  async function load(address) {
    const mine = ++asked;
    let text;
    try {
      text = await (await fetch(address)).text();
    } catch {
      if (mine === asked) element("count").textContent = "The server does not answer.";
      follow();
      return false;
    }
    if (mine !== asked) return false;
    const page = new DOMParser().parseFromString(text, "text/html");
    if (page.getElementById("found")) replaceBy(page);
    else element("count").textContent = "The server has no list at this address.";
    return true;
  }

  function replaceBy(page) {
    const at = document.activeElement && document.activeElement.closest("tr[data-name]");
    const focused = at && [at.dataset.name, document.activeElement.tagName];
    const scrolled = document.querySelector("#found .scroll").scrollLeft;
    const drawn = element("report-data").textContent;
    const parts = page.getElementById("report-data").textContent === drawn ? PARTS : [...PARTS, "charts"];
    element("count").textContent = page.getElementById("count").textContent; // the element stays, so that it is read out
    page.getElementById("charts").open = element("charts").open;
    for (const id of parts) element(id).replaceWith(page.getElementById(id));
    document.dispatchEvent(new Event("report:replaced"));
    document.querySelector("#found .scroll").scrollLeft = scrolled;
    if (focused) {
      const row = rows().find((each) => each.dataset.name === focused[0]);
      const inner = row && row.querySelector(focused[1]);
      if (inner) inner.focus({ preventScroll: true });
    }
    showPicks();
    follow();
  }

  let typed = 0;
  function filter(wait) {
    clearTimeout(typed);
    typed = setTimeout(async () => {
      const address = wanted();
      history.replaceState(null, "", address + location.hash);
      if (await load(address)) form.querySelector("select[name=tag]").value = ""; // the tag is a chip now
    }, wait);
  }

  // A list that will change says when to look again; a list that nobody sees is not asked for.
  let waiting = 0;
  function follow() {
    clearTimeout(waiting);
    const again = element("found").dataset.againMs;
    if (again) waiting = setTimeout(() => (document.hidden ? follow() : load(location.pathname + location.search)), Number(again));
  }

  // -- Picks ----------------------------------------------------------------------------------------------------------

  function showPicks() {
    for (const box of document.querySelectorAll("#found input[name=run]")) box.checked = picks.includes(box.value);
    compareForm.querySelector("button").disabled = picks.length !== 2;
    const named = picks.join(" and ");
    const texts = ["Pick two runs by their boxes, or by the key x.", `Picked: ${named}. Pick one more.`, `Picked: ${named}.`];
    element("picked").textContent = texts[picks.length] || `${picks.length} runs are picked: a comparison takes two.`;
    if (picks.length) {
      const none = document.createElement("button");
      none.type = "button";
      none.textContent = "Pick none";
      none.addEventListener("click", () => setPicks([]));
      element("picked").append(" ", none);
    }
  }

  function setPicks(next) {
    picks = next;
    sessionStorage.setItem(PICKS, JSON.stringify(picks));
    showPicks();
  }

  function toggle(name) {
    setPicks(picks.includes(name) ? picks.filter((each) => each !== name) : [...picks, name]);
  }

  function compare() {
    if (picks.length !== 2) return say(`A comparison takes two runs: ${picks.length} picked`);
    location.assign(`/compare?${new URLSearchParams(picks.map((name) => ["run", name]))}`);
  }

  function say(text) {
    const box = element("said");
    box.textContent = text;
    box.classList.add("shown");
    setTimeout(() => box.classList.remove("shown"), 2500);
  }

  // -- Keys -----------------------------------------------------------------------------------------------------------

  function here() {
    return rows().findIndex((row) => row.contains(document.activeElement));
  }

  function move(step) {
    const all = rows();
    const to = all[here() < 0 ? 0 : Math.min(Math.max(here() + step, 0), all.length - 1)];
    if (!to) return;
    (to.querySelector("a") || to.querySelector("input")).focus({ preventScroll: true });
    to.scrollIntoView({ block: "nearest" });
  }

  function turn(rel) {
    const link = document.querySelector(`.pages a[rel=${rel}]`);
    if (link) link.click();
  }

  const actions = {
    j: () => move(1),
    ArrowDown: () => move(1),
    k: () => move(-1),
    ArrowUp: () => move(-1),
    x: () => { if (here() >= 0) toggle(rows()[here()].dataset.name); },
    c: compare,
    n: () => turn("next"),
    p: () => turn("prev"),
    "/": () => form.elements.namedItem("q").select(),
    "?": () => help.showModal(),
  };

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const inField = event.target.closest("input:not([type=checkbox]), select, textarea");
    if (inField && event.key === "Escape") { event.target.blur(); move(0); return; }
    if (inField || !Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  // -- Start ----------------------------------------------------------------------------------------------------------

  form.addEventListener("input", (event) => filter(event.target.name === "q" ? TYPING_MS : 0));
  form.addEventListener("submit", (event) => { event.preventDefault(); filter(0); });
  compareForm.addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  element("keys").addEventListener("click", () => help.showModal());
  document.addEventListener("change", (event) => { if (event.target.name === "run") toggle(event.target.value); });
  document.addEventListener("keydown", onKey);
  element("charts").open = innerWidth >= NARROW_PX;
  follow();
  showPicks();
})();
