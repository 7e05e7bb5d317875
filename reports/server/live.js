// Follows a run in progress: asks for new points once a second, and draws them.
"use strict";
(() => {
  const POINTS_MAX = 600;
  const state = document.getElementById("state");
  const run = state.dataset.run;
  const points = [];
  let told = 0;

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

  function show(answer) {
    if (answer.told < told) points.length = 0; // the server was started again
    told = answer.told;
    points.push(...answer.points);
    points.splice(0, Math.max(0, points.length - POINTS_MAX));
    state.textContent = answer.state === "running" ? "In progress." : `The run is over: ${answer.state}.`;
    const last = points[points.length - 1];
    if (last) {
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
      draw("rates", [["published", "published_per_s", "dot"], ["confirmed", "confirmed_per_s", "dash"],
        ["delivered", "delivered_per_s", "solid"]], false);
      draw("latency", [["confirm p50", "confirm_p50_ms", "dot"], ["confirm p99", "confirm_p99_ms", "dash"],
        ["end-to-end p50", "e2e_p50_ms", "dashdot"], ["end-to-end p99", "e2e_p99_ms", "solid"]], true);
    }
    const items = answer.events.reverse().map((event) => {
      const item = document.createElement("li");
      item.textContent = `${event.t_s === null ? "" : `${event.t_s.toFixed(1)} s  `}${event.kind}  ${event.text}`;
      return item;
    });
    document.getElementById("events").replaceChildren(...items);
  }

  function finish(answer) {
    if (answer.points.length) return false; // more may come: a long run is caught up with in pieces
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
        show(answer);
        if (answer.state !== "running" && finish(answer)) return;
      } catch (error) {
        state.textContent = `No answer: ${error.message}. Trying again …`;
      }
      await new Promise((wait) => setTimeout(wait, 1000));
    }
  }

  follow();
})();
