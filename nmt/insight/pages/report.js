// The page of `nmt report`: one or several runs. `data.runs` has the result of nmt.insight.report.read_report for each.

const data = JSON.parse(byId("data").textContent);
const runs = data.runs;
const colorOf = (i) => `var(--run-${i % 6})`;
// Numbers of at least this size, such as the perplexity of a model that diverged, are written with an exponent.
const LARGE = 1e6;

function round(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= LARGE ? value.toExponential(digits - 1) : Number(value.toPrecision(digits));
}

function clock(seconds) {
  const minutes = Math.round(seconds / 60);
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min` : minutes ? `${minutes} min` : `${Math.round(seconds)} s`;
}

// --- title --------------------------------------------------------------------------------------------------

byId("title").textContent = runs.map((run) => run.name).join(", ");
byId("state").replaceChildren(...runs.map((run, i) => {
  const last = run.curves.step.at(-1) ?? 0, seconds = run.curves.elapsed_s.at(-1);
  const best = run.validations.reduce((a, b) => (a === null || b.dev_bleu > a.dev_bleu ? b : a), null);
  return html("span", { style: "display:block" }, runs.length > 1 ? html("b", { style: `color:${colorOf(i)}` }, `${run.name}: `) : null,
    `${last} steps${seconds ? ` in ${clock(seconds)}` : ""}`,
    best ? `; best dev BLEU ${best.dev_bleu.toFixed(2)} at step ${best.step}` : "; no validation yet", ".");
}));

// --- curves -------------------------------------------------------------------------------------------------

let axis = "step";

function pointsOf(run, name) {
  const points = name.startsWith("dev_") ? run.validations.map((line) => [axis === "step" ? line.step : line.elapsed_s / 60, line[name]])
    : run.curves.step.map((step, i) => [axis === "step" ? step : run.curves.elapsed_s[i] / 60, run.curves[name][i]]);
  return points.filter(([x, y]) => Number.isFinite(x) && typeof y === "number");
}

function ticks(low, high, n = 4) {
  const raw = (high - low) / n || 1, power = 10 ** Math.floor(Math.log10(raw));
  const size = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
  const found = [];
  for (let value = Math.ceil(low / size) * size; value <= high + 1e-9 * size; value += size) found.push(value);
  return found;
}

function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= LARGE) return value.toExponential(1).replace("+", ""); // "2.7e43", because there is little room beside the chart
  return size < 0.01 ? value.toExponential(0) : size >= 10000 ? `${Number((value / 1000).toFixed(1))}k` : String(Number(value.toPrecision(3)));
}

// The upper end of a chart is at most this multiple of the 60th percentile of its values. Otherwise, a few extreme
// points would flatten the rest of the curve.
const ROOM = { dev_perplexity: 4, grad_norm: 4, tokens_per_s: 4, loss: 10, dev_loss: 10 };

function upperEnd(name, values) {
  const sorted = [...values].sort((a, b) => a - b), largest = sorted.at(-1);
  if (!(name in ROOM)) return largest;
  return Math.min(largest, ROOM[name] * sorted[Math.floor(sorted.length * 0.6)] + 1e-9);
}

function lineChart(name, title, unit, series) {
  const width = 380, height = 210, left = 46, bottom = 26, top = 8, right = 8;
  const all = series.flatMap((one) => one.points);
  const xs = all.map(([x]) => x), ys = all.map(([, y]) => y);
  const xLow = Math.min(0, ...xs), xHigh = Math.max(...xs), yMax = Math.max(...ys);
  let yLow = Math.min(...ys), yHigh = upperEnd(name, ys);
  const cutOff = yMax > yHigh ? `highest value, above the chart: ${short(yMax)}` : "";
  if (yHigh === yLow) { yHigh += Math.abs(yHigh) * 0.1 || 1; yLow -= Math.abs(yLow) * 0.1; }
  const x = (value) => left + ((value - xLow) / (xHigh - xLow || 1)) * (width - left - right);
  const y = (value) => top + (1 - (Math.min(value, yHigh) - yLow) / (yHigh - yLow)) * (height - top - bottom);
  const grid = ticks(yLow, yHigh).map((value) => [svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--line)" }),
    svg("text", { x: left - 5, y: y(value), "text-anchor": "end", "dominant-baseline": "central", class: "muted" }, short(value))]);
  const below = ticks(xLow, xHigh).map((value) => svg("text", { x: x(value), y: height - 8, "text-anchor": "middle", class: "muted" }, short(value)));
  const lines = series.map((one) => [svg("path", { fill: "none", stroke: one.color, "stroke-width": 1.8, "stroke-linejoin": "round",
    d: one.points.map(([px, py], i) => `${i ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("") }),
  one.points.length < 40 ? one.points.map(([px, py]) => svg("circle", { cx: x(px), cy: y(py), r: 2.2, fill: one.color })) : null]);
  const cursor = svg("line", { y1: top, y2: height - bottom, stroke: "var(--text)", "stroke-dasharray": "3 3", visibility: "hidden" });
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title} by ${axis === "step" ? "step" : "minutes"}` }, grid, below, lines, cursor);
  const out = html("output", { class: "muted" }, [unit, cutOff].filter(Boolean).join("; "));
  let at = xLow;
  const show = () => {
    fill(cursor, { x1: x(at), x2: x(at), visibility: "visible" }, []);
    out.replaceChildren(`${axis === "step" ? "step" : "minute"} ${short(at)}: `, ...series.map((one, i) => {
      const near = one.points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
      return html("span", { style: `color:${one.color}` }, `${i ? ", " : ""}${series.length > 1 ? `${one.name} ` : ""}${round(near[1], 4)}`);
    }));
  };
  const grided = [...new Set(xs)].sort((a, b) => a - b);
  figure.addEventListener("pointermove", (event) => {
    const box = figure.getBoundingClientRect();
    const value = xLow + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (xHigh - xLow);
    at = grided.reduce((a, b) => (Math.abs(b - value) < Math.abs(a - value) ? b : a));
    show();
  });
  figure.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    at = grided[Math.min(grided.length - 1, Math.max(0, grided.indexOf(at) + move))] ?? grided[0];
    show();
  });
  return html("div", {}, html("h3", {}, title), figure, out);
}

function drawCurves() {
  for (const button of byId("axes").children) button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
  const charts = [];
  for (const [name, title, unit] of data.charts) {
    const series = runs.map((run, i) => ({ name: run.name, color: colorOf(i), points: pointsOf(run, name) })).filter((one) => one.points.length);
    if (series.length) charts.push(lineChart(name, title, unit, series));
  }
  put("charts", ...(charts.length ? charts : [html("p", {}, "No step has been taken yet.")]));
}

function curvesSection() {
  put("axes", ...[["step", "By step"], ["time", "By minutes"]].map(([name, title]) => html("button", { "data-axis": name, onclick: () => { axis = name; drawCurves(); } }, title)));
  drawCurves();
  put("validation-table", asTable("All validations as a table", () => table(["run", "step", "epoch", "dev loss", "perplexity", "BLEU", "chrF"],
    runs.flatMap((run) => run.validations.map((line) => [run.name, line.step, (line.epoch ?? 0) + 1, round(line.dev_loss, 4), round(line.dev_perplexity, 4), round(line.dev_bleu, 4), round(line.dev_chrf, 4)])))));
}

// --- warnings and samples -----------------------------------------------------------------------------------

function warningsSection() {
  const found = runs.flatMap((run) => run.validations.flatMap(({ step, warnings = [] }) =>
    warnings.map((text) => html("li", {}, `${runs.length > 1 ? `${run.name}, ` : ""}step ${step}: ${text}`))));
  if (!found.length) return drop("warnings");
  put("warning-list", ...found);
}

function samplesSection() {
  const nodes = [];
  for (const run of runs) {
    const withSamples = run.validations.filter((line) => line.samples?.length);
    if (!withSamples.length) continue;
    if (runs.length > 1) nodes.push(html("h3", {}, run.name));
    withSamples[0].samples.forEach(([source, reference], i) => {
      const changes = withSamples.filter((line, n) => n === 0 || line.samples[i][2] !== withSamples[n - 1].samples[i][2]);
      nodes.push(html("div", { class: "sample" }, html("p", { dir: "auto" }, html("b", {}, source)), html("p", { dir: "auto", class: "muted" }, `reference: ${reference}`),
        html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Translations of ${source}` },
          table(["from step", "translation"], changes.map((line) => [line.step, html("span", { dir: "auto" }, line.samples[i][2])])))));
    });
  }
  if (!nodes.length) return drop("samples");
  put("sample-list", ...nodes);
}

// --- settings -----------------------------------------------------------------------------------------------

function settingsSection() {
  const flat = (value, prefix) => (value !== null && typeof value === "object" && !(Array.isArray(value) && value.every((one) => typeof one !== "object"))
    ? Object.entries(value).flatMap(([key, one]) => flat(one, prefix ? `${prefix}.${key}` : key)) : [[prefix, Array.isArray(value) ? value.join(" ") : String(value)]]);
  const list = (pairs) => html("dl", {}, pairs.flatMap(([key, value]) => [html("dt", {}, key), html("dd", {}, value)]));
  put("setting-list", ...runs.map((run) => html("div", {}, html("h3", {}, run.name),
    html("details", {}, html("summary", {}, "Manifest: command, data, versions"), list(flat(run.manifest, ""))),
    html("details", {}, html("summary", {}, "All settings"), list(flat(run.settings, ""))))));
}

curvesSection();
warningsSection();
samplesSection();
settingsSection();
listSections();
