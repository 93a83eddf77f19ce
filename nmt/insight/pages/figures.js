"use strict";
// Building blocks of the pages: elements, packed tensors, heat maps, tables. They use no library and load nothing.

const LEVELS = 254; // the highest byte of a finite value in a packed tensor; 255 stands for inf, -inf and NaN
const SHADES = 10; // number of shades in a heat map
const MIN_PITCH = 15; // minimum distance, in pixels, between two columns whose labels are both written

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") node.style.cssText = value; // setAttribute would fail: the content security policy forbids style attributes
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  if (tag === "svg") attributes.viewBox ??= `0 0 ${attributes.width} ${attributes.height}`; // with a viewBox, printing can scale the figure down
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

const bdi = (text) => html("bdi", {}, text);
const byId = (id) => document.getElementById(id);
const put = (id, ...nodes) => byId(id).replaceChildren(...nodes);
const drop = (id) => byId(id).remove();

const ICONS = { first: "M2 2h3v12H2zM14 2v12L6 8z", back: "M12 2v12L3 8z", forward: "M4 2v12l9-6z", play: "M3 2l11 6L3 14z", pause: "M3 2h4v12H3zM9 2h4v12H9z" };
const icon = (name) => svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
// Makes a button of a player. It shows only an icon, so `label` is for screen readers and the tooltip.
const iconButton = (name, label, act) => html("button", { "aria-label": label, title: label, class: "icon", onclick: act }, icon(name));

// Fills the table of contents with a link to each section of the page. Hidden and removed sections get none.
function listSections() {
  put("contents", ...[...document.querySelectorAll("main section:not([hidden]) h2:not(.unseen)")].map((title) =>
    html("li", {}, html("a", { href: `#${title.closest("section").id}` }, title.textContent))));
}

function percent(probability) {
  const value = 100 * probability;
  return `${value >= 99.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)}\u00a0%`; // no line break before the percent sign
}

// --- text ---------------------------------------------------------------------------------------------------

const SPACE = "\u2581"; // the character that SentencePiece writes for a space

function piecesToText(pieces) {
  return pieces.filter((piece) => !/^<\/?(s|pad|unk)>$/.test(piece)).join("").replaceAll(SPACE, " ").trim();
}

const pen = document.createElement("canvas").getContext("2d");
const labelFont = getComputedStyle(document.documentElement).getPropertyValue("--label").trim();

function textWidth(text) {
  pen.font = labelFont;
  return pen.measureText(text).width;
}

// --- tensors ------------------------------------------------------------------------------------------------

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

class PackedTensor {
  constructor({ shape, low, high, bytes }, values = bytesOf(bytes)) {
    Object.assign(this, { shape, low, high, bytes: values });
  }

  // Returns the matrix of the last two dimensions at the given indices of all leading dimensions. Values that are not
  // finite become NaN.
  matrix(...indices) {
    const [nRows, nColumns] = this.shape.slice(-2);
    let start = 0;
    indices.forEach((index, i) => { start = start * this.shape[i] + index; });
    start *= nRows * nColumns;
    const scale = (this.high - this.low) / LEVELS;
    const value = (byte) => (byte > LEVELS ? NaN : this.low + scale * byte);
    return Array.from({ length: nRows }, (_, r) =>
      Array.from(this.bytes.subarray(start + r * nColumns, start + (r + 1) * nColumns), value));
  }
}

function meanMatrix(matrices) {
  return matrices[0].map((row, r) => row.map((_, c) =>
    matrices.reduce((sum, matrix) => sum + matrix[r][c], 0) / matrices.length));
}

// --- heat maps ----------------------------------------------------------------------------------------------

// Draws the cells of a matrix with one path per shade. With one rectangle per cell, a figure would have thousands of
// elements.
function shades(matrix, cellWidth, cellHeight, largest) {
  const paths = new Map();
  matrix.forEach((row, r) => row.forEach((value, c) => {
    let key = "hidden";
    if (!Number.isNaN(value)) {
      const shade = Math.min(SHADES, Math.ceil((SHADES * Math.abs(value)) / largest - 0.25));
      if (shade <= 0) return;
      key = `${value < 0 ? "negative" : "positive"} ${shade}`;
    }
    const square = `M${c * cellWidth} ${r * cellHeight}h${cellWidth}v${cellHeight}h${-cellWidth}z`;
    paths.set(key, (paths.get(key) ?? "") + square);
  }));
  return [...paths].map(([key, d]) => {
    const [kind, shade] = key.split(" ");
    const opacity = kind === "hidden" ? 0.18 : shade / SHADES;
    const color = kind === "hidden" ? "var(--muted)" : `var(--${kind})`;
    return svg("path", { d, fill: color, "fill-opacity": opacity, "shape-rendering": "crispEdges" });
  });
}

function largestOf(matrix) {
  let largest = 1e-9;
  for (const row of matrix) for (const value of row) if (Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
}

function thumbnail(matrix, size) {
  const cell = size / Math.max(matrix.length, matrix[0].length);
  const width = cell * matrix[0].length, height = cell * matrix.length;
  return svg("svg", { width, height, "aria-hidden": "true" },
    svg("rect", { width, height, fill: "none", stroke: "var(--line)" }), shades(matrix, cell, cell, 1));
}

// Makes a row of the overview of heads: the layer's name and a button for each head. If the row is too narrow, the
// buttons wrap.
function overviewRow(name, buttons) {
  return html("div", { class: "overview-row" }, html("span", { class: "name" }, name), html("div", { class: "layer-heads" }, buttons));
}

// Returns the columns whose labels are written. Where labels would overlap, the column with the largest absolute value
// keeps its label.
function labeledColumns(matrix, cell, columns) {
  const largest = columns.map((_, c) => Math.max(...matrix.map((row) => Math.abs(row[c]) || 0)));
  const chosen = [];
  for (const c of columns.map((_, c) => c).sort((a, b) => largest[b] - largest[a]))
    if (chosen.every((other) => Math.abs(other - c) * cell >= MIN_PITCH)) chosen.push(c);
  return chosen;
}

// Draws a matrix with labels. The pointer and the arrow keys select a cell, and `describe(row, column, value)` returns
// the text that is shown for the selected cell. Without `describe`, cells cannot be selected.
function heatMap(matrix, { rows = null, columns = null, cell = 20, cellHeight = cell, largest = null, label, describe }) {
  const nRows = matrix.length, nColumns = matrix[0].length;
  const left = rows ? Math.min(150, Math.max(80, 12 + Math.max(...rows.map(textWidth)))) : 0; // at least 80 pixels, so that most figures of a page are aligned
  const top = columns ? Math.min(150, 14 + 0.85 * Math.max(...columns.map(textWidth))) : 0;
  const overhang = (text, c) => 0.6 * textWidth(text) + 10 - (nColumns - c - 0.5) * cell; // width by which a slanted label extends beyond the last column
  const right = columns ? Math.max(1, ...columns.map(overhang)) : 1;
  const width = left + nColumns * cell, height = top + nRows * cellHeight;
  const cursor = svg("rect", { width: cell, height: cellHeight, fill: "none", stroke: "var(--text)", "stroke-width": 2,
    visibility: "hidden" });
  const grid = svg("g", { transform: `translate(${left} ${top})` },
    svg("rect", { width: nColumns * cell, height: nRows * cellHeight, fill: "none", stroke: "var(--line)" }),
    shades(matrix, cell, cellHeight, largest ?? largestOf(matrix)), cursor);
  const labels = [];
  (rows ?? []).forEach((text, r) => labels.push(svg("text", {
    x: left - 6, y: top + (r + 0.5) * cellHeight, "text-anchor": "end", "dominant-baseline": "central" }, text)));
  for (const c of labeledColumns(matrix, cell, columns ?? []))
    labels.push(svg("text", { transform: `translate(${left + (c + 0.5) * cell + 2} ${top - 6}) rotate(-55)` }, columns[c]));
  const figure = svg("svg", { width: width + right, height: height + 1, role: "img", "aria-label": label,
    tabindex: describe ? 0 : null }, labels, grid);
  const out = describe ? html("output", { class: "muted" }) : null;
  if (describe) {
    const most = matrix.map((row, r) => row.map((value, c) => [Math.abs(value) || 0, r, c])).flat().reduce((a, b) => (b[0] > a[0] ? b : a));
    out.textContent = `${describe(most[1], most[2], matrix[most[1]][most[2]])}. Point at a cell, or use the arrow keys.`;
    let row = 0, column = 0;
    const show = () => {
      fill(cursor, { x: column * cell, y: row * cellHeight, visibility: "visible" }, []);
      out.textContent = describe(row, column, matrix[row][column]);
    };
    figure.addEventListener("pointermove", (event) => {
      const box = figure.getBoundingClientRect();
      const c = Math.floor((event.clientX - box.left - left) / cell);
      const r = Math.floor((event.clientY - box.top - top) / cellHeight);
      if (r >= 0 && r < nRows && c >= 0 && c < nColumns) { [row, column] = [r, c]; show(); }
    });
    figure.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (!(event.key in moves)) return;
      event.preventDefault();
      row = Math.min(nRows - 1, Math.max(0, row + moves[event.key][0]));
      column = Math.min(nColumns - 1, Math.max(0, column + moves[event.key][1]));
      show();
    });
  }
  return html("div", { class: "figure" },
    html("div", { class: "scroll", tabindex: describe ? null : 0, role: "group", "aria-label": label }, figure), out);
}

function attentionLines(matrix, rowNames, columnNames, label) {
  const height = 26, middle = 190;
  const left = 10 + Math.max(...rowNames.map(textWidth)), right = 10 + Math.max(...columnNames.map(textWidth));
  const out = html("output", { class: "muted" }, "Point at a piece on the left, or use the arrow keys.");
  const lines = matrix.map((row, r) => svg("g", {}, row.map((weight, c) => weight < 0.03 ? null : svg("line", {
    x1: left, x2: left + middle, y1: (r + 0.5) * height, y2: (c + 0.5) * height, stroke: "var(--accent)",
    "stroke-width": 1 + 3 * weight, "stroke-opacity": weight }))));
  const names = rowNames.map((name, r) => svg("text", { x: left - 6, y: (r + 0.5) * height, "text-anchor": "end",
    "dominant-baseline": "central" }, name));
  const total = height * Math.max(rowNames.length, columnNames.length);
  const figure = svg("svg", { width: left + middle + right + 10, height: total, role: "img", "aria-label": label, tabindex: 0 },
    lines, names, columnNames.map((name, c) => svg("text", { x: left + middle + 6, y: (c + 0.5) * height,
      "dominant-baseline": "central" }, name)));
  let chosen = 0;
  const show = () => {
    lines.forEach((group, r) => group.setAttribute("opacity", r === chosen ? 1 : 0.08));
    names.forEach((name, r) => name.setAttribute("font-weight", r === chosen ? "bold" : "normal"));
    const order = matrix[chosen].map((weight, c) => [weight, c]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    out.textContent = `${rowNames[chosen]} looks at ${order.map(([w, c]) => `${columnNames[c]} ${w.toFixed(2)}`).join(", ")}`;
  };
  figure.addEventListener("pointermove", (event) => {
    const r = Math.floor((event.clientY - figure.getBoundingClientRect().top) / height);
    if (r >= 0 && r < rowNames.length) { chosen = r; show(); }
  });
  figure.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    chosen = Math.min(rowNames.length - 1, Math.max(0, chosen + move));
    show();
  });
  return html("div", { class: "figure" }, html("div", { class: "scroll" }, figure), out);
}

// --- tables -------------------------------------------------------------------------------------------------

// Makes a table whose cells are text, numbers or nodes. Columns that contain only numbers are aligned to the end.
function table(header, rows) {
  const isNumber = (value) => typeof value === "number" || /^[-\u2212]?\d[\d.,]*(\s%)?$/.test(value);
  const isNumeric = header.map((_, c) => rows.some((row) => isNumber(row[c])) && rows.every((row) => row[c] === "" || row[c] === "–" || isNumber(row[c])));
  const cell = (tag) => (value, c) => html(value === "" ? "td" : tag, { class: isNumeric[c] ? "number" : null,
    dir: "auto", scope: tag === "th" && value !== "" ? "col" : null }, typeof value === "number" ? String(value) : value);
  return html("table", {},
    html("thead", {}, html("tr", {}, header.map(cell("th")))),
    html("tbody", {}, rows.map((row) => html("tr", {}, row.map(cell("td"))))));
}

// Makes a collapsed table with the values of a figure. `build` makes the table when it is opened for the first time.
function asTable(title, build) {
  const details = html("details", {}, html("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1)
      details.append(html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, build()));
  });
  return details;
}

function matrixTable(matrix, rows, columns) {
  const digits = (value) => (Number.isNaN(value) ? "–" : value.toFixed(2));
  return table(["", ...columns], matrix.map((row, r) => [rows[r], ...row.map(digits)]));
}
