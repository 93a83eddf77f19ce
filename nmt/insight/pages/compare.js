// The page of `nmt compare`: several systems on one test set. `data` has the fields of nmt.insight.compare.Comparison.

const data = JSON.parse(byId("data").textContent);
const letterOf = (i) => String.fromCharCode(65 + i);
const colorOf = (i) => `var(--run-${i % 6})`;
const others = data.systems.map((_, i) => i).slice(1);
const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const figureWidth = Math.min(640, document.documentElement.clientWidth - 40); // draw narrower figures on a phone: scaling them down would make their text smaller
const LOWER_IS_BETTER = ["TER"];

function titleSection() {
  byId("title").textContent = data.systems.map((_, i) => letterOf(i)).join(" and ");
  byId("test-set").textContent = `${data.n_lines} lines of ${data.corpus}`;
  put("systems", table(["", "system"], data.systems.map((name, i) => [
    html("b", { style: `color:${colorOf(i)}` }, letterOf(i)), i ? name : `${name} (baseline)`])));
}

// --- scores -------------------------------------------------------------------------------------------------

function verdict(score, i) {
  const { value, p_value: p } = score.systems[i].difference;
  if (value === 0) return `${score.name}: no difference between ${letterOf(i)} and A.`;
  if (p >= 0.05) return `${score.name}: no significant difference between ${letterOf(i)} and A (p = ${p.toFixed(3)}).`;
  const isBetter = (value > 0) !== LOWER_IS_BETTER.includes(score.name);
  const size = Math.abs(value) < 0.005 ? "less than 0.01" : Math.abs(value).toFixed(2);
  return `${score.name}: ${letterOf(i)} is ${isBetter ? "better" : "worse"} than A by ${size} (p = ${p.toFixed(3)}).`;
}

// Draws a row for each score and system: a dot at the difference from the baseline, and a bar for its confidence
// interval.
function differenceFigure() {
  const rows = data.scores.flatMap((score) => others.map((i) => ({ name: `${score.name} ${letterOf(i)}`, i, ...score.systems[i].difference })));
  const width = figureWidth, left = 86, right = 64, rowHeight = 30, height = rows.length * rowHeight + 24;
  const low = Math.min(0, ...rows.map((row) => row.low)), high = Math.max(0, ...rows.map((row) => row.high));
  const x = (value) => left + ((value - low) / (high - low || 1)) * (width - left - right);
  const bars = rows.map((row, r) => {
    const y = r * rowHeight + 15;
    return [svg("text", { x: 0, y, "dominant-baseline": "central" }, row.name),
      svg("rect", { x: x(row.low), y: y - 5, width: Math.max(x(row.high) - x(row.low), 1), height: 10, rx: 3, fill: colorOf(row.i), "fill-opacity": 0.35 }),
      svg("circle", { cx: x(row.value), cy: y, r: 5, fill: colorOf(row.i) }),
      svg("text", { x: width, y, "text-anchor": "end", "dominant-baseline": "central" }, signed(row.value))];
  });
  const zero = [svg("line", { x1: x(0), x2: x(0), y1: 0, y2: height - 20, stroke: "var(--muted)", "stroke-dasharray": "3 3" }),
    svg("text", { x: x(0), y: height - 6, "text-anchor": "middle", class: "muted" }, "0")];
  return svg("svg", { width, height, role: "img", "aria-label": "Differences from A with their intervals" }, zero, bars);
}

function scoresSection() {
  const verdicts = data.scores.flatMap((score) => others.map((i) => verdict(score, i)));
  if (data.left_out) verdicts.push(`${data.left_out}.`);
  put("verdict", ...verdicts.map((text) => html("span", { style: "display:block" }, text)));
  put("difference-figure", differenceFigure());
  const bounds = (d) => `${signed(d.low)} to ${signed(d.high)}`;
  put("score-table", table(["score", "system", "value", "difference", "95 % interval", "p"], data.scores.flatMap((score) =>
    score.systems.map(({ value, difference: d }, i) => [score.name, letterOf(i), value.toFixed(2), ...(d ? [signed(d.value), bounds(d), d.p_value.toFixed(4)] : ["–", "–", "–"])]))));
  put("signatures", ...["The p-values are by paired bootstrap, as in sacreBLEU, but ties count: equal systems have p = 1.", ...data.scores.map((score) => html("code", {}, `${score.name} ${score.signature}`))]
    .map((line) => html("span", { style: "display:block;overflow-wrap:anywhere" }, line)));
}

// --- lines --------------------------------------------------------------------------------------------------

// The words of a text, with the spaces and punctuation marks between them.
const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });
const wordsOf = (text) => [...WORDS.segment(text)].map((part) => part.segment);

// Returns the words of `text`, and underlines those that are not in the longest common subsequence with `other`.
function marked(text, other) {
  const [own, their] = [text, other].map(wordsOf);
  const length = Array.from({ length: own.length + 1 }, () => new Uint16Array(their.length + 1));
  for (let i = own.length - 1; i >= 0; i--)
    for (let j = their.length - 1; j >= 0; j--)
      length[i][j] = own[i] === their[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const nodes = [];
  for (let i = 0, j = 0; i < own.length;) {
    if (j < their.length && own[i] === their[j]) { nodes.push(own[i]); i++; j++; }
    else if (j < their.length && length[i][j + 1] >= length[i + 1][j]) j++;
    else { nodes.push(/^\s+$/.test(own[i]) ? own[i] : html("u", {}, own[i])); i++; }
  }
  return nodes;
}

function pair(line, i) {
  const side = (s, other) => html("div", { style: `--side:${colorOf(s)}` },
    html("p", { class: "muted" }, `${letterOf(s)}, chrF ${line.chrf[s].toFixed(1)}`),
    html("p", { dir: "auto" }, marked(line.translations[s], line.translations[other])));
  return html("div", { class: "pair" }, html("p", { dir: "auto" }, html("span", { class: "muted" }, `line ${line.number} `), html("b", {}, line.source)),
    html("p", { dir: "auto" }, html("span", { class: "muted" }, "reference: "), line.reference),
    html("div", { class: "sides" }, side(0, i), side(i, 0)));
}

function linesSection() {
  const nodes = data.differing.flatMap((differing, at) => [["better", differing.better], ["worse", differing.worse]]
    .filter(([, lines]) => lines.length)
    .flatMap(([name, lines]) => [html("h3", {}, `${letterOf(at + 1)} is ${name} than A`), ...lines.map((line) => pair(line, at + 1))]));
  if (!nodes.length) return drop("lines");
  put("line-list", ...nodes);
}

titleSection();
scoresSection();
linesSection();
listSections();
