"use strict";
// One picture: lines, bands and points over time, with a tip under the pointer and zoom by dragging. No library: the
// page has to work without a network, and in ten years.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, text) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

const number = (x, digits = 4) => {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e6 || size < 1e-4 ? x.toExponential(2) : String(Number(x.toPrecision(digits)));
};

const pad = (n) => String(n).padStart(2, "0");
function date(ms) {
  const d = new Date(ms);
  const day = `${d.getUTCFullYear()}-${pad(d.getUTCMonth() + 1)}-${pad(d.getUTCDate())}`;
  return ms % 864e5 === 0 ? day : `${day} ${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}`;
}
const stamp = (t) => (D.dated ? date(t) : number(t, 6));

// Ticks: round numbers, or round dates.
function roundTicks(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const ticks = [];
  for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * span; x += step) ticks.push(Math.abs(x) < 1e-9 * step ? 0 : x);
  return ticks.map((x) => [x, number(x, 6)]);
}

function dateTicks(low, high, count) {
  const day = 864e5, span = high - low, raw = span / count;
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((m) => m * 30.44 * day >= raw);
  if (raw > 20 * day && months) {
    const ticks = [], first = new Date(low);
    let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
    for (;; month += months) {
      const at = Date.UTC(Math.floor(month / 12), month % 12, 1);
      if (at > high) break;
      if (at >= low) ticks.push([at, months % 12 === 0 ? String(Math.floor(month / 12)) : date(at).slice(0, 7)]);
    }
    return ticks;
  }
  const steps = [1e3, 5e3, 15e3, 3e4, 6e4, 3e5, 9e5, 18e5, 36e5, 108e5, 216e5, 432e5, day, 2 * day, 7 * day, 14 * day];
  const step = steps.find((s) => s >= raw) || 28 * day;
  const ticks = [], monday = step % (7 * day) === 0 ? 4 * day : 0; // the first of January 1970 was a Thursday
  for (let x = Math.ceil((low - monday) / step) * step + monday; x <= high; x += step) {
    const d = new Date(x);
    const hour = `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}`;
    const short = step >= day ? date(x).slice(5) : step < 6e4 ? `${hour}:${pad(d.getUTCSeconds())}` : hour;
    ticks.push([x, ticks.length ? short : step >= day ? date(x) : date(x).slice(0, 10)]);
  }
  return ticks;
}

class Chart {
  // spec: {t, dated, bands: [{name, low, high, color, opacity}], lines: [{name, y, color}], points: {t, y}, shade: [from, to],
  //        label, log}
  constructor(box, spec) {
    this.box = box;
    this.spec = spec;
    this.hidden = new Set();
    this.marked = null;
    this.full = this.view = [spec.t[0], spec.t[spec.t.length - 1]];
    this.height = Number(box.dataset.height);
    this.tip = el("div", { class: "tip", hidden: "" });
    this.root = svg("svg", { role: "img", "aria-label": spec.label, tabindex: "0" });
    box.append(this.root, this.tip);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(box);
    this.draw();
  }

  show(name, shown) { shown ? this.hidden.delete(name) : this.hidden.add(name); this.draw(); }
  zoom(low, high) { this.view = high > low ? [Math.max(low, this.full[0]), Math.min(high, this.full[1])] : this.full; this.draw(); }
  mark(t, y) {
    this.marked = [t, y];
    const width = (this.full[1] - this.full[0]) / 8;
    this.zoom(t - width, t + width);
  }

  inside(t) { return t >= this.view[0] && t <= this.view[1]; }

  range() {
    let low = Infinity, high = -Infinity;
    const take = (t, y) => { for (let i = 0; i < t.length; i++) if (this.inside(t[i]) && y[i] !== null) { low = Math.min(low, y[i]); high = Math.max(high, y[i]); } };
    for (const band of this.spec.bands || []) if (!this.hidden.has(band.name)) { take(this.spec.t, band.low); take(this.spec.t, band.high); }
    for (const line of this.spec.lines) if (!this.hidden.has(line.name)) take(this.spec.t, line.y);
    if (this.spec.points && !this.hidden.has(this.spec.points.name)) take(this.spec.points.t, this.spec.points.y);
    if (!(high >= low)) [low, high] = [0, 1];
    if (high === low) [low, high] = [low - 0.5, high + 0.5];
    const margin = 0.05 * (high - low);
    return [low - margin, high + margin];
  }

  draw() {
    const width = this.box.clientWidth || 600, height = this.height, left = 56, right = 12, top = 8, bottom = 24;
    const root = this.root, spec = this.spec;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("height", height);
    root.replaceChildren();
    const [low, high] = this.range(), [from, to] = this.view;
    this.x = (t) => left + ((t - from) / (to - from || 1)) * (width - left - right);
    this.y = (v) => top + ((high - v) / (high - low)) * (height - top - bottom);
    this.at = (px) => from + ((px - left) / (width - left - right)) * (to - from);
    const clip = `clip-${this.box.id}`;
    svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }, svg("clipPath", { id: clip }, svg("defs", {}, root)));
    for (const [v, text] of roundTicks(low, high, 5)) {
      svg("line", { class: "axis", x1: left, x2: width - right, y1: this.y(v), y2: this.y(v) }, root);
      svg("text", { x: left - 6, y: this.y(v) + 4, "text-anchor": "end" }, root, text);
    }
    const ticks = spec.dated ? dateTicks(from, to, width / 90) : roundTicks(from, to, width / 90);
    for (const [t, text] of ticks) svg("text", { x: this.x(t), y: height - 6, "text-anchor": "middle" }, root, text);
    const plot = svg("g", { "clip-path": `url(#${clip})` }, root);
    if (spec.shade && !this.hidden.has("forecast")) {
      svg("rect", { class: "shade", x: this.x(spec.shade[0]), y: top, width: Math.max(0, this.x(spec.shade[1]) - this.x(spec.shade[0])),
        height: height - top - bottom, fill: "var(--shade)" }, plot);
    }
    for (const band of spec.bands || []) if (!this.hidden.has(band.name)) {
      const there = spec.t.map((t, i) => i).filter((i) => band.low[i] !== null);
      const forth = there.map((i) => `${this.x(spec.t[i]).toFixed(1)},${this.y(band.high[i]).toFixed(1)}`);
      const back = there.reverse().map((i) => `${this.x(spec.t[i]).toFixed(1)},${this.y(band.low[i]).toFixed(1)}`);
      svg("polygon", { points: forth.concat(back).join(" "), fill: band.color, opacity: band.opacity, "data-name": band.name }, plot);
    }
    if (spec.points && !this.hidden.has(spec.points.name)) {
      const p = spec.points, count = p.t.filter((t) => this.inside(t)).length, size = Math.max(1.2, Math.min(3.5, 60 / Math.sqrt(count || 1)));
      const group = svg("g", { fill: "currentColor", opacity: 0.7, "data-name": p.name }, plot);
      for (let i = 0; i < p.t.length; i++) if (this.inside(p.t[i])) svg("circle", { cx: this.x(p.t[i]).toFixed(1), cy: this.y(p.y[i]).toFixed(1), r: size.toFixed(1) }, group);
    }
    for (const line of spec.lines) if (!this.hidden.has(line.name)) {
      const points = spec.t.map((t, i) => (line.y[i] === null ? "" : `${this.x(t).toFixed(1)},${this.y(line.y[i]).toFixed(1)}`)).filter(Boolean);
      svg("polyline", { points: points.join(" "), fill: "none", stroke: line.color, "stroke-width": 1.6, "data-name": line.name }, plot);
    }
    if (this.marked) svg("circle", { class: "mark", cx: this.x(this.marked[0]), cy: this.y(this.marked[1]), r: 8, fill: "none", stroke: "var(--red)", "stroke-width": 2 }, plot);
    this.cursor = svg("line", { y1: top, y2: height - bottom, stroke: "var(--soft)", "stroke-dasharray": "3 3", visibility: "hidden" }, root);
    this.brush = svg("rect", { y: top, height: height - top - bottom, fill: "var(--shade)", visibility: "hidden" }, root);
  }

  nearest(t, times) {
    let a = 0, b = times.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; times[m] < t ? (a = m) : (b = m); }
    return Math.abs(times[a] - t) <= Math.abs(times[b] - t) ? a : b;
  }

  tell(px, py) {
    const t = this.at(px), spec = this.spec, i = this.nearest(t, spec.t);
    if (t < this.view[0] || t > this.view[1]) return this.quiet();
    const said = [spec.dated ? date(spec.t[i]) : number(spec.t[i], 6)];
    for (const line of spec.lines) if (!this.hidden.has(line.name) && line.y[i] !== null) said.push(`${line.name} ${number(line.y[i])}`);
    for (const band of spec.bands || []) if (!this.hidden.has(band.name)) said.push(`${band.name} ${number(band.low[i])} to ${number(band.high[i])}`);
    if (spec.points && !this.hidden.has(spec.points.name) && spec.points.t.length) {
      const k = this.nearest(t, spec.points.t);
      if (Math.abs(this.x(spec.points.t[k]) - px) < 12) said.push(`observed ${number(spec.points.y[k])} (${stamp(spec.points.t[k])})`);
    }
    this.tip.textContent = said.join("\n");
    this.tip.hidden = false;
    const room = this.box.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(px + 14, room))}px`;
    this.tip.style.top = `${Math.max(0, py - 20)}px`;
    this.cursor.setAttribute("x1", this.x(spec.t[i]));
    this.cursor.setAttribute("x2", this.x(spec.t[i]));
    this.cursor.setAttribute("visibility", "visible");
  }

  quiet() { this.tip.hidden = true; this.cursor.setAttribute("visibility", "hidden"); }

  listen() {
    const place = (event) => { const r = this.root.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
    let start = null;
    this.root.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (start === null) return this.tell(px, py);
      this.brush.setAttribute("x", Math.min(px, start));
      this.brush.setAttribute("width", Math.abs(px - start));
      this.brush.setAttribute("visibility", "visible");
    });
    this.root.addEventListener("pointerdown", (event) => { start = place(event)[0]; this.root.setPointerCapture(event.pointerId); });
    this.root.addEventListener("pointerup", (event) => {
      const end = place(event)[0], begun = start;
      start = null;
      if (begun !== null && Math.abs(end - begun) > 8) this.zoom(this.at(Math.min(begun, end)), this.at(Math.max(begun, end)));
      else this.brush.setAttribute("visibility", "hidden");
    });
    this.root.addEventListener("pointerleave", () => this.quiet());
    const all = () => { this.marked = null; this.zoom(0, -1); };
    this.root.addEventListener("dblclick", all);
    this.root.addEventListener("keydown", (event) => { if (event.key === "Escape") all(); });
  }
}

function bars(box, values, labels, reference, bounds) {
  const draw = () => {
    const width = box.clientWidth || 300, height = Number(box.dataset.height), left = 40, bottom = 22, top = 8;
    const low = Math.min(0, ...values, bounds ? -bounds : 0), high = Math.max(...values, bounds || 0, reference || 0) * 1.08 || 1;
    const y = (v) => top + ((high - v) / (high - low)) * (height - top - bottom), step = (width - left - 8) / values.length;
    const root = svg("svg", { role: "img", viewBox: `0 0 ${width} ${height}`, height, "aria-label": box.dataset.label || "" });
    for (const [v, text] of roundTicks(low, high, 4)) {
      svg("line", { class: "axis", x1: left, x2: width, y1: y(v), y2: y(v) }, root);
      svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, root, text);
    }
    values.forEach((v, i) => {
      const bar = svg("rect", { x: left + i * step + 1, width: Math.max(1, step - 2), y: Math.min(y(v), y(0)), height: Math.abs(y(v) - y(0)), fill: "var(--sky)" }, root);
      svg("title", {}, bar, `${labels[i]}: ${number(v, 3)}`);
      if (i % Math.ceil(values.length / 10) === 0) svg("text", { x: left + (i + 0.5) * step, y: height - 6, "text-anchor": "middle" }, root, labels[i]);
    });
    const level = (v) => svg("line", { x1: left, x2: width - 8, y1: y(v), y2: y(v), stroke: "var(--red)", "stroke-dasharray": "4 3" }, root);
    if (reference) level(reference);
    if (bounds) { level(bounds); level(-bounds); }
    box.replaceChildren(root);
  };
  new ResizeObserver(draw).observe(box);
  draw();
}

function table(node, head, rows, onClick) {
  const header = el("tr");
  head.forEach((text) => header.append(el("th", {}, text)));
  const body = el("tbody");
  rows.forEach((row, i) => {
    const line = el("tr", onClick ? { tabindex: "0" } : {});
    row.forEach((cell) => line.append(el("td", typeof cell === "number" || cell === null ? { class: "number" } : {}, typeof cell === "string" ? cell : number(cell))));
    if (onClick) { line.addEventListener("click", () => onClick(i)); line.addEventListener("keydown", (e) => { if (e.key === "Enter") onClick(i); }); }
    body.append(line);
  });
  const top = el("thead");
  top.append(header);
  node.append(top, body);
}

$("about").textContent = D.about.join(" · ");
if (D.warnings.length) { $("warnings").hidden = false; D.warnings.forEach((text) => $("warnings").querySelector("ul").append(el("li", {}, text))); }

const main = new Chart($("chart"), {
  t: D.curve.t, dated: D.dated, label: "The series with its mean, bands and forecast",
  bands: [{ name: D.band, low: D.curve.lower, high: D.curve.upper, color: "var(--sky)", opacity: 0.35 }],
  lines: [{ name: "mean", y: D.curve.mean, color: "var(--blue)" }],
  points: { name: "observations", t: D.points.t, y: D.points.y }, shade: D.shade,
});
const parts = [["observations", "currentColor"], ["mean", "var(--blue)"], [D.band, "var(--sky)"]];
if (D.shade) parts.push(["forecast", "var(--shade)"]);
for (const [name, color] of parts) {
  const label = el("label"), box = el("input", { type: "checkbox", checked: "" });
  box.addEventListener("change", () => main.show(name, box.checked));
  label.append(box, el("span", { class: "swatch", style: `background:${color}` }), name);
  $("controls").append(label);
}

if (D.forecast) {
  $("forecast-section").hidden = false;
  const rows = D.forecast.t.map((t, i) => [stamp(t), D.forecast.mean[i], D.forecast.lower[i], D.forecast.upper[i]]);
  table($("forecast"), ["time", "mean", "lower", "upper"], rows);
  $("download").addEventListener("click", () => {
    const text = ["time,mean,lower,upper", ...D.forecast.t.map((t, i) => [D.dated ? new Date(t).toISOString().slice(0, 19) : t, D.forecast.mean[i], D.forecast.lower[i], D.forecast.upper[i]].join(","))].join("\n");
    const link = el("a", { href: URL.createObjectURL(new Blob([text + "\n"], { type: "text/csv" })), download: "forecast.csv" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

if (D.components.length > 1) {
  $("components-section").hidden = false;
  D.components.forEach((part, i) => {
    $("components").append(el("h3", { style: "font-size:.875rem;font-weight:normal" }, part.name));
    const box = el("div", { class: "chart", id: `component-${i}`, "data-height": "130" });
    $("components").append(box);
    new Chart(box, { t: D.curve.t, dated: D.dated, label: part.name, lines: [{ name: "mean", y: part.mean, color: "var(--blue)" }],
      bands: [{ name: D.level, low: part.lower, high: part.upper, color: "var(--sky)", opacity: 0.35 }], shade: D.shade });
  });
}

table($("parameters"), ["hyperparameter", "value", `${D.level} between`, ""], D.parameters);
D.method.forEach((text) => $("method").append(el("li", {}, text)));

if (D.anomalies.t.length) {
  const a = D.anomalies;
  $("anomalies-section").hidden = false;
  table($("anomalies"), ["time", "observed", "expected", "between", "and", "probability"],
    a.t.map((t, i) => [stamp(t), a.value[i], a.mean[i], a.lower[i], a.upper[i], a.probability[i]]),
    (i) => { main.mark(a.t[i], a.value[i]); $("chart").scrollIntoView({ block: "center" }); });
}

{
  bars($("pit"), D.check.histogram, D.check.histogram.map((_, i) => ((i + 0.5) / D.check.histogram.length).toFixed(2)), 1 / D.check.histogram.length);
  bars($("acf"), D.check.autocorrelation, D.check.autocorrelation.map((_, i) => String(i + 1)), 0, 2 / Math.sqrt(D.check.n));
  $("acf-caption").textContent = `Autocorrelation of errors ${D.check.ahead ? "one step ahead" : "about the curve"}; bars inside the dashed lines are chance.`;
  table($("coverage"), ["interval", "holds"], D.check.levels.map((level, i) => [`${number(100 * level)} %`, `${(100 * D.check.coverage[i]).toFixed(1)} %`]));
}

if (D.trace) {
  $("trace-section").hidden = false;
  new Chart($("trace"), { t: D.trace.map((_, i) => i), dated: false, label: "The objective at every step of learning", lines: [{ name: "objective", y: D.trace, color: "var(--blue)" }] });
}
