// The page is complete without this script; it draws the figures and makes tables sortable.
// State (place, theme, unit, run) lives in the address hash: #place&theme=dark&unit=s&run=r2-
"use strict";
(() => {
  const root = document.documentElement;
  const readReport = () => JSON.parse(document.getElementById("report-data").textContent);
  let report = readReport();
  const PER_MS = { "µs": 1e3, ms: 1, s: 1e-3 };
  const NARROW_PX = 560;
  const LEGEND_ROW_PX = 22;
  const NARROW_OPENING_PX = 250; // height of the picture below the answer, so that both are on the first screen
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const state = { at: "", theme: "", unit: "ms", run: "" };
  const drawn = new Map(); // figure element -> width it was drawn for
  let printing = false;

  // -- State --------------------------------------------------------------------------------------------------------

  function readHash() {
    const next = { at: "", theme: "", unit: "ms", run: "" };
    for (const part of decodeURIComponent(location.hash.slice(1)).split("&")) {
      const [key, value] = part.split("=");
      if (value === undefined) next.at = key || next.at;
      else if (key === "theme" && report.palettes[value]) next.theme = value;
      else if (key === "unit" && PER_MS[value]) next.unit = value;
      else if (key === "run" && document.querySelector(`[data-run="${CSS.escape(value)}"]`)) next.run = value;
    }
    return next;
  }

  function hashOf(place) {
    const parts = [place, state.theme && `theme=${state.theme}`, state.unit !== "ms" && `unit=${state.unit}`, state.run && `run=${state.run}`];
    return "#" + parts.filter(Boolean).join("&");
  }

  function rememberState() {
    history.replaceState(null, "", hashOf(state.at));
  }

  function apply(next) {
    const redraw = next.theme !== state.theme || next.unit !== state.unit;
    const showsOther = next.run !== state.run;
    Object.assign(state, next);
    if (state.theme) root.dataset.theme = state.theme;
    else delete root.dataset.theme;
    for (const control of document.querySelectorAll("[data-state]")) control.value = state[control.dataset.state];
    for (const run of document.querySelectorAll("[data-run]")) run.hidden = state.run !== "" && run.dataset.run !== state.run;
    if (redraw) { writeUnit(); redrawAll(); }
    if (showsOther) observeAll();
  }

  function themeName() {
    if (printing) return "light";
    return state.theme || (darkSystem.matches ? "dark" : "light");
  }

  // -- Numbers: the same rule as the page was made with -------------------------------------------------------------

  function significant(value) {
    const size = Math.abs(value);
    const fixed = (digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    if (size >= 99.95) return fixed(0);
    if (size >= 9.995) return fixed(1);
    if (size >= 0.9995) return fixed(2);
    if (size === 0) return "0";
    return size >= 1e-4 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
  }

  function writeUnit() {
    for (const span of document.querySelectorAll("[data-unit]")) span.textContent = state.unit;
    for (const cell of document.querySelectorAll("td.latency[data-v]")) {
      cell.textContent = significant((Number(cell.dataset.v) / 1e6) * PER_MS[state.unit]);
    }
  }

  // -- Figures --------------------------------------------------------------------------------------------------------

  function onScale(anchors, position) {
    const place = Math.min(Math.max(position, 0), 1) * (anchors.length - 1);
    const below = Math.min(Math.floor(place), anchors.length - 2);
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    return "#" + [1, 3, 5].map((at) => {
      const low = channel(anchors[below], at), high = channel(anchors[below + 1], at);
      return Math.round(low + (high - low) * (place - below)).toString(16).padStart(2, "0");
    }).join("");
  }

  function colour(token, theme) {
    const match = /^@([a-z-]+)(?:\/([01](?:\.\d+)?))?$/.exec(token);
    if (!match) return token;
    return match[1] === "scale" ? onScale(report.scales[theme], Number(match[2])) : report.palettes[theme][match[1]];
  }

  // A copy with tokens replaced by colours and {unit} by the unit.
  function resolve(node, theme) {
    if (typeof node === "string") return colour(node, theme).replaceAll("{unit}", state.unit);
    if (Array.isArray(node)) return node.map((part) => resolve(part, theme));
    if (node === null || typeof node !== "object") return node;
    return Object.fromEntries(Object.entries(node).map(([key, part]) => [key, resolve(part, theme)]));
  }

  // Arrays may hold rows of values, as those of heat maps do.
  function scaled(values, factor) {
    return values.map((value) => (Array.isArray(value) ? scaled(value, factor) : value === null ? null : value * factor));
  }

  function scaleLatencies(data) {
    for (const trace of data) {
      for (const name of (trace.meta && trace.meta.latency) || []) trace[name] = scaled(trace[name], PER_MS[state.unit]);
    }
  }

  function fitWidth({ data, layout }, width, opens) {
    if (width >= NARROW_PX) return;
    const named = layout.showlegend ? data.filter((trace) => trace.showlegend !== false).length : 0;
    const rows = Math.max(0, Math.ceil(named / 2) - 1); // of the legend, beyond the first
    if (opens && layout.height <= 340) layout.height = Math.min(layout.height, NARROW_OPENING_PX + LEGEND_ROW_PX * rows);
    if (layout.meta.narrow_labels === false) {
      for (const trace of data) if (trace.mode === "lines+markers+text") trace.mode = "lines+markers";
    }
    if (layout.meta.narrow_legend === false) { layout.showlegend = false; layout.margin.t = 12; }
    layout.margin = { ...layout.margin, l: 48, r: Math.max(10, layout.margin.r - 14) };
    layout.font.size = 11.5;
    layout.legend.font.size = 10.5;
    for (const [key, part] of Object.entries(layout)) {
      if (!/^[xy]axis/.test(key)) continue;
      part.tickfont.size = 10.5;
      part.title = { ...part.title, standoff: 4, text: (part.title.text || "").replace(", log scale", "") };
      part.title.font.size = 11;
    }
    for (const note of layout.annotations || []) if (note.font) note.font.size = 10;
  }

  function figureFor(element, width) {
    const figure = resolve(report.figures[element.dataset.figure], themeName());
    scaleLatencies(figure.data);
    fitWidth(figure, width, element.closest(".minute") !== null);
    return figure;
  }

  function draw(element) {
    const plot = element.querySelector(".plot");
    const width = plot.clientWidth;
    if (!width) return;
    const figure = figureFor(element, width);
    if (drawn.has(element)) Plotly.purge(plot); // drawn over itself, a legend of several lines would lie in the figure
    Plotly.react(plot, figure.data, { ...figure.layout, width }, { displaylogo: false, displayModeBar: false, responsive: false });
    drawn.set(element, width);
  }

  function redrawAll() {
    for (const element of drawn.keys()) draw(element);
  }

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || drawn.has(entry.target)) continue;
      draw(entry.target);
      observer.unobserve(entry.target);
    }
  }, { rootMargin: "600px 0px" });

  function observeAll() {
    for (const element of document.querySelectorAll("[data-figure]")) if (!drawn.has(element)) observer.observe(element);
  }

  function onResize() {
    for (const [element, width] of drawn) {
      if (element.querySelector(".plot").clientWidth !== width) draw(element);
    }
  }

  function drawForPrint(on) {
    printing = on;
    for (const element of document.querySelectorAll("[data-figure]")) if (element.querySelector(".plot").clientWidth) draw(element);
  }

  // -- Downloads and copies -------------------------------------------------------------------------------------------

  function say(text) {
    const box = document.getElementById("said");
    box.textContent = text;
    box.classList.add("shown");
    setTimeout(() => box.classList.remove("shown"), 1600);
  }

  function csvCell(text) {
    // A text that a spreadsheet would take for a formula is kept a text.
    const safe = /^[=+@\-\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function csvOf(table) {
    const lines = [[...table.tHead.rows[0].cells].map((cell) => csvCell(cell.dataset.name))];
    for (const row of table.tBodies[0].rows) {
      lines.push([...row.cells].map((cell) => (cell.classList.contains("text") ? csvCell(cell.textContent) : cell.dataset.v || "")));
    }
    return lines.map((cells) => cells.join(",")).join("\r\n") + "\r\n";
  }

  function save(text, name, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function savePicture(element) {
    const width = 1100;
    const figure = figureFor(element, width);
    const heading = element.querySelector("h3").cloneNode(true);
    heading.querySelector(".anchor").remove();
    const extra = 56;
    const layout = {
      ...figure.layout, width, height: figure.layout.height + extra,
      margin: { ...figure.layout.margin, t: figure.layout.margin.t + extra },
      title: { text: heading.textContent.trim().replaceAll("<", "&lt;"), x: 0.02, xanchor: "left", y: 0.97, yanchor: "top", font: { size: 17 } },
    };
    const filename = element.querySelector("table").dataset.file.replace(/\.csv$/, "");
    Plotly.downloadImage({ data: figure.data, layout }, { format: "png", width, height: layout.height, scale: 2, filename });
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      say(document.execCommand("copy") ? "Copied" : "Could not copy: select the text instead");
      area.remove();
    }
  }

  const actions = {
    table(button) {
      const shown = button.closest("figure").classList.toggle("shown");
      button.setAttribute("aria-expanded", String(shown));
    },
    csv(button) {
      const table = (button.closest("figure, details") || button.closest("section")).querySelector("table");
      save(csvOf(table), table.dataset.file, "text/csv;charset=utf-8");
    },
    png(button) { savePicture(button.closest("figure")); },
    copy(button) { copy(button.closest(".command").querySelector("code").textContent); },
  };

  // -- Sorting --------------------------------------------------------------------------------------------------------

  function keyOf(cell) {
    if (cell.classList.contains("text")) return cell.textContent;
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  }

  function compare(a, b, direction) {
    if (a === null || b === null) return (a === null) - (b === null); // not measured: always last
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return order * direction;
  }

  function sort(table, heading) {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[heading.cellIndex]) }));
    rows.sort((a, b) => compare(a.key, b.key, ascending ? 1 : -1));
    body.append(...rows.map(({ row }) => row));
  }

  function makeSortable(table) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
    }
  }

  // -- Other content --------------------------------------------------------------------------------------------------

  // A script of the page has replaced tables and figures.
  function takeOver() {
    report = readReport();
    for (const element of drawn.keys()) if (!element.isConnected) drawn.delete(element);
    for (const table of document.querySelectorAll("table[data-sortable]")) if (!table.querySelector("thead button")) makeSortable(table);
    if (state.unit !== "ms") writeUnit();
    observeAll();
  }

  // -- Start ----------------------------------------------------------------------------------------------------------

  function goTo(place) {
    const target = place && document.getElementById(place);
    if (target) target.scrollIntoView();
  }

  function onClick(event) {
    const button = event.target.closest("[data-do]");
    if (button) { actions[button.dataset.do](button); return; }
    const link = event.target.closest('a[href^="#"]');
    if (!link) return;
    event.preventDefault();
    state.at = link.getAttribute("href").slice(1);
    history.pushState(null, "", hashOf(state.at));
    goTo(state.at);
    if (link.classList.contains("anchor")) copy(location.href);
  }

  function onChange(event) {
    const key = event.target.dataset.state;
    if (!key) return;
    apply({ ...state, [key]: event.target.value });
    rememberState();
  }

  root.classList.add("js");
  document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
  document.addEventListener("click", onClick);
  document.addEventListener("change", onChange);
  addEventListener("hashchange", () => { apply(readHash()); goTo(state.at); });
  addEventListener("resize", onResize);
  addEventListener("beforeprint", () => drawForPrint(true));
  addEventListener("afterprint", () => drawForPrint(false));
  document.addEventListener("report:replaced", takeOver);
  darkSystem.addEventListener("change", redrawAll);
  apply(readHash());
  observeAll();
  goTo(state.at);
})();
