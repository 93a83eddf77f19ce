// The page of `nmt explain --growth`: one sentence in the course of training. Each of `runs` has the fields of
// nmt.insight.growth.Growth.

const runs = JSON.parse(byId("data").textContent);
const nameOf = (run) => run.run.split(/[\\/]/).at(-1);
const number = (step) => step.toLocaleString("en");
const stepsOf = (run) => run.snapshots.map((one) => one.step);
let data, snapshots, steps, cross; // the run that is shown, and some of its fields
let onShow = []; // functions that draw the figures of a snapshot, given its index
const state = { n: 0, layer: null, head: null };

function show(n) {
  state.n = Math.min(snapshots.length - 1, Math.max(0, n));
  onShow.forEach((draw) => draw(state.n));
}

// Returns the index of a run's last snapshot up to a step, or 0 if all snapshots are of later steps.
const snapshotAt = (run, step) => Math.max(0, stepsOf(run).findLastIndex((one) => one <= step));

function choose(run, step) {
  data = run;
  ({ snapshots } = run);
  steps = stepsOf(run);
  cross = run.cross;
  onShow = [];
  for (const build of [header, player, togetherSection, curvesSection, piecesSection, attentionSection]) build();
  listSections();
  show(snapshotAt(run, step));
}

// --- title and player ---------------------------------------------------------------------------------------

function header() {
  byId("source").textContent = data.source;
  byId("model").textContent = `${data.model}. ${snapshots.length} snapshots of the run ${nameOf(data)}, of steps ${number(steps[0])} to ${number(steps.at(-1))}.`;
  put("runs", ...(runs.length === 1 ? [] : runs).map((run, i) => html("button", { "aria-pressed": String(run === data),
    onclick: () => { stop(); choose(run, steps[state.n]); byId("runs").children[i].focus(); } }, nameOf(run))));
  onShow.push((n) => { byId("now").textContent = textOf(snapshots[n]); }); // the translation by greedy search
}

function textOf(one) {
  return (one.translation || "(nothing)") + (one.is_cut ? " … (stopped at the length limit)" : "");
}

let timer = null;
const showPlaying = () => document.querySelector(".play").replaceChildren(icon(timer ? "pause" : "play"), timer ? "Pause" : "Play");

function stop() {
  clearInterval(timer);
  timer = null;
  showPlaying();
}

function player() {
  const slider = html("input", { type: "range", min: 0, max: snapshots.length - 1, "aria-label": "Snapshot",
    oninput: () => { stop(); show(Number(slider.value)); } });
  const out = html("output", {});
  const play = html("button", { class: "play", onclick: () => {
    if (timer) return stop();
    if (state.n === snapshots.length - 1) show(0);
    timer = setInterval(() => { show(state.n + 1); if (state.n === snapshots.length - 1) stop(); }, 1100);
    showPlaying();
  } }, icon("play"), "Play");
  const move = (by) => () => { stop(); show(state.n + by); };
  put("player", iconButton("first", "To the first snapshot", () => { stop(); show(0); }), iconButton("back", "Back", move(-1)), play, iconButton("forward", "Forward", move(1)), slider, out);
  onShow.push((n) => {
    slider.value = n;
    slider.setAttribute("aria-valuetext", `step ${number(steps[n])}`);
    out.textContent = `Training step ${number(steps[n])} (${n + 1} of ${snapshots.length})`;
  });
}

// --- curves -------------------------------------------------------------------------------------------------

// Rounds a positive number up to one significant digit.
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Math.ceil(value / power) * power;
}

function chart(title, lines) {
  const width = 358, height = 170, left = 34, right = 12, top = 10, bottom = 36;
  const points = lines.flatMap((line) => line.points);
  const first = Math.max(1, Math.min(...steps)), last = Math.max(...steps, ...points.map(([step]) => step), first + 1);
  const ys = points.map(([, y]) => y), low = Math.min(0, ...ys), high = roundedUp(Math.max(...ys, 1));
  const x = (step) => left + (Math.log(Math.max(step, first) / first) / Math.log(last / first)) * (width - left - right);
  const y = (value) => top + (1 - (value - low) / (high - low)) * (height - top - bottom);
  const present = svg("line", { y1: top, y2: height - bottom + 8, class: "present-line" });
  onShow.push((n) => fill(present, { x1: x(steps[n]), x2: x(steps[n]) }, []));
  const labels = steps.filter((_, i) => i === 0 || i === steps.length - 1 || i === steps.length >> 1);
  const grid = [low, (low + high) / 2, high].map((value) => [
    svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--line)" }),
    svg("text", { x: left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central", class: "muted" }, String(Number(value.toPrecision(2))))]);
  const legend = lines.filter((line) => line.label).map(({ label, name, color = "var(--accent)" }) =>
    html("span", { style: `color: ${name === "training" ? "var(--muted)" : color}` }, `━ ${label}`));
  return html("div", {}, html("h3", {}, title), html("p", { class: "legend" }, legend), svg("svg", { width, height, role: "img", "aria-label": `${title} by step` }, grid,
    steps.map((step) => svg("line", { x1: x(step), x2: x(step), y1: height - bottom, y2: height - bottom + 8, class: "mark" })),
    labels.map((step, i) => svg("text", { x: x(step), y: height - 10, "text-anchor": ["start", "middle", "end"][i], class: "muted" }, `${i ? "" : "step "}${number(step)}`)),
    lines.map(({ name = "", points, color = "var(--accent)", dots = false }) => [
      svg("polyline", { points: points.map(([step, value]) => `${x(step)},${y(value)}`).join(" "), class: `curve ${name}`, style: name ? null : `stroke: ${color}` }),
      dots ? points.map(([step, value]) => svg("circle", { cx: x(step), cy: y(value), r: 3, fill: color })) : null]),
    present));
}

// The words of a text. The browser knows the words of scripts without spaces, too.
const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });
const wordsOf = (text) => [...WORDS.segment(text)].filter((part) => part.isWordLike).map((part) => part.segment);

// Returns two shares. The first is the share of the reference's words that the translation contains. The second is the
// share of these common words that are in the same order in both texts: the length of the longest common subsequence,
// divided by the number of common words. It is null if there are fewer than two common words.
function wordShares(translation, reference) {
  const [a, b] = [wordsOf(translation), wordsOf(reference)], rest = [...a];
  const nCommon = b.filter((word) => { const i = rest.indexOf(word); if (i >= 0) rest.splice(i, 1); return i >= 0; }).length;
  let row = new Array(b.length + 1).fill(0); // row[j]: length of the longest common subsequence of the words read from `a` and the first j words of `b`
  for (const word of a) {
    const above = row;
    row = [0];
    b.forEach((other, j) => row.push(word === other ? above[j] + 1 : Math.max(above[j + 1], row[j])));
  }
  return [nCommon / Math.max(1, b.length), nCommon > 1 ? row.at(-1) / nCommon : null];
}

function curvesSection() {
  const dev = (i) => ({ points: data.validations.map((line) => [line[0], line[i]]), dots: true });
  const figures = [];
  if (data.loss.length || data.validations.length)
    figures.push(chart("Loss", [{ name: "training", label: "training", points: data.loss }, { ...dev(1), label: "dev" }]));
  if (data.validations.length) figures.push(chart("Dev BLEU, 0 to 100", [dev(2)]));
  const shares = snapshots.map((one) => [one.step, wordShares(one.translation, data.reference)]);
  figures.push(chart("Words of the reference, %", [
    { label: "found", points: shares.map(([step, [found]]) => [step, 100 * found]), dots: true },
    { label: "in order", points: shares.filter(([, [, inOrder]]) => inOrder !== null).map(([step, [, inOrder]]) => [step, 100 * inOrder]), color: "var(--negative)", dots: true }]));
  put("curve-figures", ...figures);
  put("translations", table(["step", "translation"], snapshots.map((one) => [number(one.step), bdi(textOf(one))])));
  const rows = [...byId("translations").querySelectorAll("tbody tr")];
  onShow.push((n) => rows.forEach((row, i) => { row.className = i === n ? "now" : ""; }));
}

// --- several runs -------------------------------------------------------------------------------------------

// Returns the geometric mean of the probabilities that a snapshot gives to the pieces of the reference.
const meanProbability = (one) => Math.exp(one.probabilities.reduce((sum, p) => sum + Math.log(p), 0) / one.probabilities.length);

function togetherSection() {
  byId("together").hidden = runs.length === 1;
  if (runs.length === 1) return;
  const colors = runs.map((_, i) => `var(--run-${i % 6})`);
  byId("together-text").replaceChildren("Every run with the same sentence, at the same step. The reference is “", bdi(data.reference), "”.");
  put("run-names", ...runs.map((run, i) => html("span", { style: `color: ${colors[i]}` }, `● ${nameOf(run)}`)));
  const lines = (pointsOf) => runs.map((run, i) => ({ points: pointsOf(run), color: colors[i], dots: true }));
  put("together-figures", chart("Dev BLEU", lines((run) => run.validations.map(([step, , bleu]) => [step, bleu]))),
    chart("Probability of the reference, %, mean of its pieces", lines((run) => run.snapshots.map((one) => [one.step, 100 * meanProbability(one)]))));
  onShow.push((n) => put("together-table", table(["run", "translation", "probability"], runs.map((run, i) => {
    const one = run.snapshots[snapshotAt(run, steps[n])];
    return [html("b", { style: `color: ${colors[i]}` }, nameOf(run)), bdi(textOf(one)), percent(meanProbability(one))];
  }))));
}

// --- reference tokens ---------------------------------------------------------------------------------------

function piecesSection() {
  byId("pieces-text").replaceChildren(`How probable each snapshot finds the pieces of ${data.is_given ? "the reference" : "the finished model's translation"}, “`,
    html("bdi", {}, data.reference), "”, when it reads the true pieces before each one. The curve is the whole training, from 0 to 100 %; the line is the present snapshot.");
  const width = 300, height = 34, x = (i) => 4 + (i / Math.max(1, snapshots.length - 1)) * (width - 8), y = (p) => 32 - 30 * p;
  put("piece-list", ...data.reference_pieces.map((piece, t) => {
    const all = snapshots.map((one) => one.probabilities[t]);
    const line = all.map((p, i) => `${x(i)},${y(p)}`).join(" ");
    const present = svg("line", { y1: 0, y2: height, class: "present-line" }), value = html("span", { class: "value" });
    onShow.push((n) => { fill(present, { x1: x(n), x2: x(n) }, []); value.textContent = percent(all[n]); });
    return html("div", { class: "piece" }, html("span", { class: "name" }, bdi(piece)),
      svg("svg", { width, height, preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("polygon", { points: `${x(0)},32 ${line} ${x(all.length - 1)},32`, class: "area" }), svg("polyline", { points: line, class: "curve" }), present), value);
  }), asTable("All probabilities as a table", () => table(["step", ...data.reference_pieces], snapshots.map((one) => [number(one.step), ...one.probabilities.map(percent)]))));
}

// --- attention ----------------------------------------------------------------------------------------------

function attentionSection() {
  const [, nLayers, nHeads] = cross.shape;
  byId("attention").hidden = !nLayers;
  if (!nLayers) return;
  Object.assign(state, { layer: nLayers - 1, head: 0 });
  onShow.push((n) => {
    put("overview", ...Array.from({ length: nLayers }, (_, layer) => overviewRow(`Layer ${layer + 1}`,
      Array.from({ length: nHeads }, (_, head) => html("button", { "aria-label": `Layer ${layer + 1}, head ${head + 1}`,
        "aria-pressed": String(layer === state.layer && head === state.head),
        onclick: () => { Object.assign(state, { layer, head }); show(state.n); byId("overview").querySelectorAll("button")[layer * nHeads + head].focus(); } },
      thumbnail(cross.matrix(n, layer, head), 50))))));
    byId("head-name").textContent = `Layer ${state.layer + 1}, head ${state.head + 1}, step ${number(steps[n])}`;
    put("head-figure", heatMap(cross.matrix(n, state.layer, state.head), { rows: data.reference_pieces, columns: data.source_pieces, cell: 30, largest: 1,
      label: `Cross-attention of layer ${state.layer + 1}, head ${state.head + 1}`,
      describe: (r, c, value) => `${data.reference_pieces[r]} looks at ${data.source_pieces[c]} with weight ${value.toFixed(2)}` }));
  });
}

// Decompresses the attention weights of a run. They are compressed because they are most of the page.
async function inflate(run) {
  const stream = new Blob([bytesOf(run.cross.bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  run.cross = new PackedTensor(run.cross, new Uint8Array(await new Response(stream).arrayBuffer()));
}

Promise.all(runs.map(inflate)).then(() => choose(runs[0], Infinity));
