// Follows a run in progress: asks for new points once a second, and draws them. A pause freezes the drawing; points are
// still asked for, so that nothing is missing when the drawing goes on.
"use strict";
(() => {
  const POINTS_MAX = 600;
  const state = document.getElementById("state");
  const run = state.dataset.run;
  const pause = document.getElementById("pause");
  const points = [];
  let events = [];
  let told = 0;
  let paused = false;
  let unseen = 0; // points that came during the pause

  const cell = (value, digits) => (value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: digits }));
  const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(id, series, logarithmic) {
    const ink = property("--ink");
    const rule = property("--rule");
    const axis = { color: ink, gridcolor: rule, zerolinecolor: rule };
    const traces = series.map(([name, column, dash]) => ({
      name, x: points.map((point) => point.t_s), y: points.map((point) => point[column]),
      mode: "lines", line: { dash, width: 1.5 },
    }));
    const layout = {
      margin: { l: 60, r: 10, t: 10, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      xaxis: { ...axis, title: { text: "seconds since the run started" } },
      yaxis: { ...axis, type: logarithmic ? "log" : "linear", rangemode: "tozero" },
    };
    Plotly.react(id, traces, layout, { displayModeBar: false, responsive: true });
  }

  function take(answer) {
    if (answer.told < told) points.length = 0; // the server was started again
    told = answer.told;
    points.push(...answer.points);
    points.splice(0, Math.max(0, points.length - POINTS_MAX));
    events = answer.events.reverse();
    unseen = paused ? unseen + answer.points.length : 0;
    const more = unseen ? `: ${unseen} more interval${unseen === 1 ? "" : "s"}` : "";
    const going = paused ? `The drawing is paused; the run goes on${more}.` : "In progress.";
    state.textContent = answer.state === "running" ? going : `The run is over: ${answer.state}.`;
    if (!paused) show();
  }

  function show() {
    const last = points[points.length - 1];
    if (last) {
      showLast(last);
      draw("rates", [["published", "published_per_s", "dot"], ["confirmed", "confirmed_per_s", "dash"],
        ["delivered", "delivered_per_s", "solid"]], false);
      draw("latency", [["confirm p50", "confirm_p50_ms", "dot"], ["confirm p99", "confirm_p99_ms", "dash"],
        ["end-to-end p50", "e2e_p50_ms", "dashdot"], ["end-to-end p99", "e2e_p99_ms", "solid"]], true);
    }
    const items = events.map((event) => {
      const item = document.createElement("li");
      item.textContent = `${event.t_s === null ? "" : `${event.t_s.toFixed(1)} s  `}${event.kind}  ${event.text}`;
      return item;
    });
    document.getElementById("events").replaceChildren(...items);
  }

  function showLast(last) {
    const row = document.createElement("tr");
    const step = document.createElement("th");
    step.scope = "row";
    step.className = "text";
    step.textContent = `${last.label} (${last.phase})`;
    row.append(step);
    const figures = ["published_per_s", "confirmed_per_s", "delivered_per_s",
      "confirm_p50_ms", "confirm_p99_ms", "e2e_p50_ms", "e2e_p99_ms"];
    for (const name of figures) {
      const td = document.createElement("td");
      td.textContent = name.endsWith("per_s") ? cell(Math.round(last[name]), 12) : cell(last[name], 3);
      row.append(td);
    }
    document.querySelector("#now tbody").replaceChildren(row);
  }

  function togglePause() {
    paused = !paused;
    unseen = 0;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on drawing" : "Pause the drawing";
    if (paused) state.textContent = "The drawing is paused; the run goes on.";
    else show();
  }

  function finish(answer) {
    if (answer.points.length) return false; // more may come: a long run is caught up with in pieces
    if (paused) togglePause();
    state.textContent = `The run is over: ${answer.state}.`;
    pause.hidden = true;
    const link = document.createElement("a");
    link.href = `/runs/${run}/`;
    link.textContent = " See its page.";
    state.append(link);
    return true;
  }

  async function follow() {
    for (;;) {
      try {
        const response = await fetch(`/runs/${run}/live.json?told=${told}`);
        if (!response.ok) throw new Error(await response.text());
        const answer = await response.json();
        take(answer);
        if (answer.state !== "running" && finish(answer)) return;
      } catch (error) {
        state.textContent = `No answer: ${error.message}. Trying again …`;
      }
      await new Promise((wait) => setTimeout(wait, 1000));
    }
  }

  pause.addEventListener("click", togglePause);
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest("button, a, input") || pause.hidden) return;
    event.preventDefault(); // the page would scroll
    togglePause();
  });
  follow();
})();
