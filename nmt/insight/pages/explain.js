// The page of `nmt explain`: the explanation of one translation. `data` has the fields of nmt.Explanation.

const data = JSON.parse(byId("data").textContent);
const best = data.hypotheses[0];
const attention = Object.fromEntries(Object.entries(data.attention).map(([part, packed]) => [part, new PackedTensor(packed)]));
const sourcePieces = data.source_pieces;
// Row t of the attention weights belongs to the step that predicts piece t.
const targetPieces = best.tokens.map((token) => token.piece);
const inputPieces = ["<s>", ...targetPieces.slice(0, -1)]; // the decoder's input
const probability = (token) => Math.exp(token.log_prob);

function bar(share) {
  return html("span", { class: "bar", style: `width:max(1px, ${share} * min(280px, 36vw))` });
}

function heads(part) {
  const [nLayers, , nHeads] = attention[part].shape;
  return { nLayers, nHeads };
}

function meanOfHeads(part) {
  const { nLayers, nHeads } = heads(part);
  const all = [];
  for (let layer = 0; layer < nLayers; layer++)
    for (let head = 0; head < nHeads; head++) all.push(attention[part].matrix(layer, 0, head));
  return all.length ? meanMatrix(all) : null;
}

const meanCross = meanOfHeads("cross");

function mostAttended(t) {
  if (!meanCross) return null;
  const row = meanCross[t];
  return row.indexOf(Math.max(...row));
}

// --- title and words ----------------------------------------------------------------------------------------

byId("source").textContent = data.source;
byId("translation").textContent = best.text;
byId("model").textContent = `${data.model}. Log-probability ${best.log_prob.toFixed(3)}, score ${best.score.toFixed(3)}.`;
if (data.settings.architecture === "rnn") { // figure 1 of the paper shows a Transformer, so the page must not name it
  const isAttending = data.settings.attention !== "none";
  byId("map-origin").textContent = `The layers of the recurrent model${isAttending ? " and its attention (Luong et al. 2015)" : ""}.`;
  byId("stages-origin").textContent = " at the end";
}

function words() {
  const least = best.tokens.reduce((a, b) => (b.log_prob < a.log_prob ? b : a));
  const other = least.alternatives.find((choice) => choice.token !== least.token);
  const before = piecesToText(targetPieces.slice(0, best.tokens.indexOf(least)));
  const sentences = [html("p", {}, "The model was least sure when it wrote ", html("b", {}, bdi(least.piece)),
    before ? [" after “", bdi(before), "”"] : [], `: it gave this piece ${percent(probability(least))}.`,
    other ? [least.rank > 1 ? " The most probable one was " : " The next best was ", html("b", {}, bdi(other.piece)), ` with ${percent(Math.exp(other.log_prob))}.`] : [])];
  const passedOver = best.tokens.filter((token) => token.rank > 1);
  if (passedOver.length) sentences.push(html("p", {}, "It did not always write the most probable piece, because the search looks for the best sentence: ",
    passedOver.map((token, i) => [i ? ", " : "", html("b", {}, bdi(token.piece)), ` (${percent(probability(token))}) instead of `,
      html("b", {}, bdi(token.alternatives[0].piece)), ` (${percent(Math.exp(token.alternatives[0].log_prob))})`]), "."));
  sentences.push(html("p", {}, data.greedy.text === best.text
    ? "Greedy search, which always takes the most probable piece, would have written the same."
    : ["Greedy search, which always takes the most probable piece, would have written: ", html("b", { dir: "auto" }, data.greedy.text),
      data.greedy.is_cut ? " … (stopped at the length limit)" : ""]));
  put("summary", ...sentences);
  const buttons = best.tokens.map((token, t) => {
    const p = probability(token);
    return html("button", { class: "token", "aria-pressed": "false",
      onclick: () => choose(t) }, bdi(token.piece), html("span", { class: "share" },
      html("span", { style: `width:${100 * p}%` })), html("span", { class: "value" }, percent(p)));
  });
  byId("tokens").dir = getComputedStyle(byId("translation")).direction;
  put("tokens", ...buttons);
  const choose = (t) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === t)));
    const token = best.tokens[t];
    put("choices", html("p", {}, "Instead of ", html("b", {}, bdi(token.piece)), ", after “", bdi(piecesToText(targetPieces.slice(0, t)) || "…"), "”:"),
      table(["piece", "probability", ""], token.alternatives.map((choice) => [
        [bdi(choice.piece), choice.token === token.token ? " (written)" : ""], percent(Math.exp(choice.log_prob)),
        bar(Math.exp(choice.log_prob))])));
  };
  choose(best.tokens.indexOf(least));
  put("word-table", asTable("All pieces as a table", () => table(["", "piece", "probability", "attended to most", "considered instead"],
    best.tokens.map((token, t) => [t + 1, bdi(token.piece), percent(probability(token)),
      meanCross ? bdi(sourcePieces[mostAttended(t)]) : "–",
      token.alternatives.filter((choice) => choice.token !== token.token).slice(0, 3)
        .map((choice) => `${choice.piece} ${percent(Math.exp(choice.log_prob))}`).join(", ")]))));
}

// --- attention ----------------------------------------------------------------------------------------------

const PARTS = {
  cross: ["Decoder to source", "Each row is a piece of the translation, each column a piece of the source: where the model looked when it wrote that piece."],
  encoder: ["Within the source", "Each row is a source piece that gathers information from the other source pieces."],
  decoder: ["Within the translation", "Each row is a piece that was read, from the start sign on; it may look only at itself and what stands before it."],
};
const shown = { part: null, layer: null, head: null, lines: false }; // if `layer` is null, the mean of all heads is shown

function axesOf(part) {
  // The label of a row is the predicted piece in cross-attention, and the input piece in self-attention.
  const rows = { encoder: sourcePieces, decoder: inputPieces, cross: targetPieces }[part];
  return [rows, part === "decoder" ? inputPieces : sourcePieces];
}

function attentionSection() {
  const parts = Object.keys(PARTS).filter((part) => attention[part].shape[0] > 0);
  if (!parts.length) return drop("attention");
  shown.part = parts[0];
  put("parts", ...parts.map((part) => html("button", { "data-part": part, onclick: () => {
    Object.assign(shown, { part, layer: null, head: null });
    drawAttention();
  } }, PARTS[part][0])));
  put("views", ...[["Matrix", false], ["Lines", true]].map(([name, lines]) => html("button", { "data-lines": String(lines),
    onclick: () => { shown.lines = lines; drawAttention(); } }, name)));
  drawAttention();
}

function drawAttention() {
  const { part, layer, head } = shown;
  const { nLayers, nHeads } = heads(part);
  for (const button of byId("parts").children) button.setAttribute("aria-pressed", String(button.dataset.part === part));
  for (const button of byId("views").children) button.setAttribute("aria-pressed", String(button.dataset.lines === String(shown.lines)));
  byId("part-text").textContent = PARTS[part][1];
  const size = Math.max(34, Math.min(64, 260 / nHeads - 14)); // the heads of a layer fit into one row, unless there are too many for the minimum of 34 pixels
  const select = (l, h) => () => { Object.assign(shown, { layer: l, head: h }); drawAttention(); };
  const rows = [html("div", { class: "overview-row" }, html("button", { "aria-pressed": String(layer === null),
    onclick: select(null, null) }, "Mean of all heads"))];
  for (let l = 0; l < nLayers; l++) {
    rows.push(overviewRow(`Layer ${l + 1}`, Array.from({ length: nHeads }, (_, h) => html("button", {
      "aria-label": `Layer ${l + 1}, head ${h + 1}`, title: `Layer ${l + 1}, head ${h + 1}`,
      "aria-pressed": String(l === layer && h === head), onclick: select(l, h) },
      thumbnail(attention[part].matrix(l, 0, h), size)))));
  }
  const focused = document.activeElement?.getAttribute("aria-label");
  put("overview", ...rows);
  if (focused) byId("overview").querySelector(`button[aria-label="${focused}"]`)?.focus();
  const matrix = layer === null ? meanOfHeads(part) : attention[part].matrix(layer, 0, head);
  const [rowNames, columnNames] = axesOf(part);
  byId("head-name").textContent = layer === null ? "Mean of all heads" : `Layer ${layer + 1}, head ${head + 1}`;
  const describe = (r, c, value) => `${rowNames[r]} looks at ${columnNames[c]} with weight ${value.toFixed(2)}`;
  const label = `Attention weights, ${PARTS[part][0].toLowerCase()}, ${byId("head-name").textContent.toLowerCase()}`;
  const cell = Math.max(7, Math.min(60, 600 / columnNames.length));
  const figure = shown.lines ? attentionLines(matrix, rowNames, columnNames, label)
    : heatMap(matrix, { rows: rowNames, columns: columnNames, cell, cellHeight: Math.min(26, cell), largest: 1, label, describe });
  put("head-figure", figure, asTable("As a table", () => matrixTable(matrix, rowNames, columnNames)));
}

// --- search -------------------------------------------------------------------------------------------------

function searchSection() {
  const { beam, sample } = data.options;
  const scored = data.options.alpha === 1 ? "its length" : `the power ${data.options.alpha} of its length`;
  byId("search-text").textContent = sample
    ? "The translations were drawn at random: at each step every hypothesis is continued by one piece, drawn by its probability."
    : beam === 1 ? "Greedy search: at each step only the most probable piece is kept."
      : `Beam search keeps the ${beam} best hypotheses (beginnings of a translation) at every step. It continues each of them by every piece of the vocabulary. Continuations by </s> that are among the best ${beam} are finished and set aside; of the others, the ${beam} best go on to the next step, and the rest are dropped. The score of a finished hypothesis is its log-probability divided by ${scored}, so that long translations are not at a disadvantage; the best score wins.`;
  put("search-figure", ...searchTree(data.tree, data.greedy.text !== best.text));
  put("hypotheses", table(["", "translation", "score", "log-probability", "pieces"], data.hypotheses.map((one, i) => [
    i + 1, html("span", { dir: "auto" }, one.text), one.score.toFixed(3), one.log_prob.toFixed(3), one.tokens.length])));
}

// --- reference and one pass ---------------------------------------------------------------------------------

function referenceSection() {
  const found = data.reference;
  if (!found) return drop("reference");
  const at = found.first_difference;
  put("reference-summary", html("b", { dir: "auto" }, found.text), html("br"),
    `The model gives it log-probability ${found.log_prob.toFixed(2)}. `,
    at === null ? "Greedy search writes the same pieces." : `Greedy search leaves the reference at piece ${at + 1}, and reads its own words from then on (orange).`);
  put("reference-table", table(["", "reference", "probability", "rank", "most probable here", "written by greedy search"],
    found.tokens.map((token, i) => [i + 1, bdi(token.piece), percent(probability(token)), token.rank, bdi(token.alternatives[0].piece),
      html("bdi", { class: at !== null && i >= at ? "differs" : null }, data.greedy.tokens[i]?.piece ?? "")])));
}

function onePassSection() {
  const choices = (token) => token.alternatives.slice(0, 3).map((choice) => `${choice.piece} ${percent(Math.exp(choice.log_prob))}`).join(", ");
  put("one-pass-texts", "One pass: ", html("b", { dir: "auto" }, data.one_pass.text || "(nothing)"), " – step by step: ", html("b", { dir: "auto" }, best.text));
  put("one-pass-table", table(["", "in one pass", "its best three", "step by step", "its best three"],
    data.one_pass.tokens.map((token, i) => [i + 1, bdi(token.piece), choices(token), bdi(best.tokens[i].piece), choices(best.tokens[i])])));
}

// --- stages -------------------------------------------------------------------------------------------------

function rowNamesOf(axis) {
  return { S: sourcePieces, T: inputPieces }[axis] ?? null;
}

function hiddenAsGray(matrix) {
  return matrix.map((row) => row.map((value) => (value > 0.5 ? 1 : NaN)));
}

function stageFigure(stage, width) {
  const matrix = new PackedTensor(stage.values).matrix();
  const [rowAxis, columnAxis] = stage.axes.slice(-2);
  const rows = rowNamesOf(rowAxis), columns = stage.columns ?? rowNamesOf(columnAxis);
  const cell = Math.max(6, Math.min(columns ? 40 : 20, width / matrix[0].length));
  const isMask = stage.name === "Mask";
  return heatMap(isMask ? hiddenAsGray(matrix) : matrix, { rows, columns, cell, cellHeight: 16, label: `${stage.part}: ${stage.name}`,
    largest: stage.name.startsWith("Attention weights") || stage.name === "Probabilities" || isMask ? 1 : null });
}

function stagesSection() {
  let part = null;
  const nodes = [];
  for (const stage of data.stages) {
    if (stage.part !== part) nodes.push(html("h3", {}, { encoder: "Encoder", decoder: "Decoder", output: "Output" }[stage.part]),
      html("p", { class: "muted" }, stage.part === "encoder" ? "A row is a piece of the source."
        : "A row is a piece that the decoder reads, from <s> on. From this row it predicts the next piece."));
    part = stage.part;
    const nShown = stage.values.shape.at(-1), isCut = stage.shape.at(-1) > nShown;
    const cut = isCut && stage.columns ? `the most probable ${nShown} of ${stage.shape.at(-1)} columns` : "";
    const section = stage.section ? `section ${stage.section}` : "";
    nodes.push(html("div", { class: "stage columns", style: colorsOf(stage.name) }, html("div", { class: "text" }, html("h4", {}, stage.name), html("p", {}, html("code", {}, `(${[...stage.axes].join(", ")}) = (${stage.shape.join(", ")})`)),
      html("p", { class: "muted" }, [section, cut].filter(Boolean).join(", ")), html("p", {}, stage.text)), stageFigure(stage, 640)));
  }
  put("stage-list", ...nodes);
}

// Draws the first screen at once. Before it draws each of the sections below, it lets the browser paint.
async function drawAll() {
  player(stageFigure);
  words();
  referenceSection();
  listSections();
  for (const draw of [attentionSection, searchSection, onePassSection, stagesSection]) {
    await new Promise((resolve) => setTimeout(resolve));
    draw();
  }
  listSections(); // again: the sections that do not apply to this model have been removed
}

drawAll();
