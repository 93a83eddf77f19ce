"use strict";
// The player of `nmt explain`: it shows decoding step by step, on the map and beside it.

// Milliseconds: the duration of a step while playing, and the time from its start until the chosen piece is shown.
const PACE = 1800, RESULT = 1100;

// --- the ways to step through -------------------------------------------------------------------------------

// Returns the ways to step through decoding. Each has one or two lanes. A lane is one run of the decoder: the pieces
// that it reads, and the tokens that it predicts. If `isGiven`, it reads given pieces instead of its own predictions.
function lanes(found) {
  const pieces = (tokens) => tokens.map((token) => token.piece);
  const own = (name, tokens) => ({ name, read: ["<s>", ...pieces(tokens).slice(0, -1)], tokens, isGiven: false });
  const translation = own("Step by step", found.hypotheses[0].tokens);
  const ways = [{ name: "The translation", text: "The decoder reads what it has written and chooses the next piece, until it writes </s>.", lanes: [translation] }];
  if (found.reference) ways.push({ name: "Teacher forcing", text: "In training the decoder reads the reference, whatever it would have written itself. In translation it reads its own words.",
    lanes: [{ ...own("Teacher forcing", found.reference.tokens), isGiven: true, isReference: true }, own("Free running", found.greedy.tokens)] });
  ways.push({ name: "One pass", text: "A common mistake: the decoder runs once, over <s> and padding, so no position knows what stands before it.",
    lanes: [{ name: "One pass", read: found.one_pass.tokens.map((_, i) => (i ? "<pad>" : "<s>")), tokens: found.one_pass.tokens, isGiven: true }, translation] });
  return ways;
}

// --- figures beside the map ---------------------------------------------------------------------------------

// Makes the table of the most probable next tokens of a lane. At each step, the rows stay and their contents change. If
// `pick` is given, the rows are buttons that call `pick(choice)`.
function distribution(lane, pick) {
  const isAmongBest = (token) => token.alternatives.some((one) => one.token === token.token);
  const n = Math.max(...lane.tokens.map((token) => token.alternatives.length + !isAmongBest(token)));
  const rows = Array.from({ length: n }, () => {
    const parts = { piece: html("bdi", { class: "piece" }), bar: html("span", { class: "fall" }), value: html("span", { class: "value" }) };
    const row = html(pick ? "button" : "div", { class: "choice" }, parts.piece, html("span", { class: "track" }, parts.bar), parts.value);
    if (pick) row.addEventListener("click", () => pick(row.choice));
    return { row, ...parts };
  });
  const told = html("p", { class: "told" }), so = html("p", { class: "so-far" });
  const show = (t, picked) => {
    const token = lane.tokens[t], padding = lane.read.slice(1, t + 1).filter((piece) => piece === "<pad>").length;
    const read = lane.read.slice(1, t + 1), isLong = read.length > 6;
    const after = html("bdi", {}, isLong ? "… " : "", piecesToText(read.slice(-6)) || (padding ? `<s> and ${padding} × <pad>` : "<s>"));
    const line = html("span", {}, ...(token ? ["After ", html("b", {}, after), ", the next piece:"] : ["Ended at ", html("b", {}, "</s>"), "."]));
    told.replaceChildren(line);
    so.replaceChildren(...lane.tokens.slice(0, t + 1).map((one, i) => {
      const best = one.alternatives[0];
      return html("bdi", { class: i === t ? "last" : null }, (lane.isGiven ? best : one).piece.replace(SPACE, i ? " " : ""));
    }));
    if (token && lane.isReference && token.rank > 1) line.append(" (the reference: ", html("b", {}, bdi(token.piece)), `, rank ${token.rank})`);
    const others = token?.alternatives ?? [];
    const choices = !token || others.some((one) => one.token === token.token) ? others : [...others, token];
    rows.forEach(({ row, piece, bar, value }, i) => {
      const choice = choices[i];
      row.classList.toggle("absent", !choice);
      row.classList.toggle("written", Boolean(choice) && choice.token === token.token);
      row.choice = choice;
      if (pick) { row.disabled = !choice; row.setAttribute("aria-pressed", String(Boolean(choice) && choice.token === picked?.token)); }
      if (!choice) return;
      piece.textContent = choice.piece;
      bar.style.transform = `scaleX(${Math.exp(choice.log_prob)})`;
      value.textContent = percent(Math.exp(choice.log_prob));
    });
  };
  return { node: html("div", { class: "lane" }, html("h3", {}, lane.name), told, html("div", { class: "choices-list" }, rows.map(({ row }) => row)), html("p", { class: "muted so-name" }, "Its choices so far"), so), show };
}

function maskFigure() {
  const stage = data.stages.find((one) => one.name === "Mask" && one.axes === "TT");
  if (!stage) return null;
  const matrix = new PackedTensor(stage.values).matrix(), n = matrix.length, cell = Math.min(22, 130 / n);
  const groups = matrix.map((row, r) => svg("g", { class: "grows", transform: `translate(0 ${r * cell})` }, shades([row.map((value) => (value > 0.5 ? 1 : NaN))], cell, cell, 1)));
  const cursor = svg("rect", { class: "cursor", width: n * cell, height: cell });
  const told = html("figcaption", { class: "muted" });
  const show = (t) => {
    groups.forEach((group, r) => { group.style.opacity = r <= t ? 1 : 0; });
    cursor.style.transform = `translateY(${t * cell}px)`;
    const seen = matrix[t].flatMap((value, c) => (value > 0.5 ? [c + 1] : []));
    told.textContent = `Layer 1. Row ${t + 1} sees ${seen.length === 1 ? `position ${seen[0]}` : `positions ${seen[0]} to ${seen.at(-1)}`}`;
  };
  return { node: html("figure", {}, html("h3", {}, "Causal mask"), svg("svg", { width: n * cell, height: n * cell, role: "img", "aria-label": "Causal mask" }, [svg("rect", { class: "frame", width: n * cell, height: n * cell }), groups, cursor]), told), show };
}

function cacheFigure() {
  const [shapes, packedValues] = data.cache, values = new PackedTensor(packedValues);
  const isRecurrent = data.settings.architecture === "rnn", [nKinds, n, d] = values.shape;
  const width = Math.min(22, 200 / n), cell = 60 / d, names = isRecurrent ? ["state", "cell"] : ["keys", "values"];
  const matrices = Array.from({ length: nKinds }, (_, kind) => values.matrix(kind));
  const largest = matrices.map(largestOf);
  const columns = Array.from({ length: n }, (_, t) => svg("g", { class: "grows falls" }, matrices.map((matrix, kind) =>
    svg("g", { transform: `translate(${t * width} ${kind * 70})`, style: isRecurrent ? null : colorsOf(kind ? "Values" : "Keys") }, shades(matrix[t].map((value) => [value]), width - 0.5, cell, largest[kind])))));
  const told = html("figcaption", { class: "muted" });
  const show = (t) => {
    const kept = isRecurrent ? 1 : shapes[t][3]; // with a local window, the cache drops old tokens
    columns.forEach((column, i) => {
      column.style.opacity = i > t || i <= t - kept ? 0 : 1;
      column.style.transform = i > t ? "translateY(-10px)" : "none";
    });
    told.textContent = isRecurrent ? `Last layer, ${shapes[t].join("×")}; replaced at each step` : `Layer 1, ${shapes[t].join("×")}. Head 1: keys above values, ${kept === 1 ? "1 column" : `${kept} columns`}`;
  };
  const frames = matrices.map((_, kind) => svg("rect", { class: "frame", y: kind * 70, width: n * width, height: 60 }));
  const title = isRecurrent ? "Recurrent state" : "KV cache";
  return { node: html("figure", {}, html("h3", {}, title), svg("svg", { width: n * width, height: 70 * nKinds - 10, role: "img", "aria-label": `${title}: ${names.slice(0, nKinds).join(" above ")}` }, [frames, columns]), told), show };
}

// --- tokens that the model did not choose -------------------------------------------------------------------

// Finds the node of the search that continues the translation's first t tokens by `choice`. Returns it as `root`, with
// `nodes`: the root and all nodes that continue it. Returns null if there is no such node.
function branch(nodes, tokens, t, choice) {
  let parent = null;
  const find = (token) => nodes.find((node) => node.parent === (parent && parent.index) && node.token === token);
  for (const token of tokens.slice(0, t)) {
    parent = find(token.token);
    if (!parent) return null;
  }
  const root = find(choice.token);
  if (!root) return null;
  const inside = new Set([root.index]);
  for (const node of nodes) if (inside.has(node.parent)) inside.add(node.index); // one pass is enough: parents come before their children
  return { root, nodes: nodes.filter((node) => inside.has(node.index)) };
}

// Makes a table of hypotheses, given the last node of each.
function hypotheses(nodes, outcome) {
  const outcomes = nodes.map(outcome), has = outcomes.some(Boolean);
  return html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Hypotheses" }, table(["hypothesis", "score", ...(has ? [""] : [])],
    nodes.map((node, i) => [bdi(piecesToText(pathOf(data.tree, node)) || node.piece), node.score.toFixed(3), ...(has ? [outcomes[i]] : [])])));
}

function aliveAt(t) {
  const nodes = data.tree.filter((node) => node.position === t + 1 && node.status !== "pruned").sort((a, b) => b.score - a.score);
  return [html("p", { class: "muted" }, "The best hypotheses after this step. Choose a piece to follow another."),
    hypotheses(nodes.slice(0, 5), (node) => (node.status === "finished" ? "finished" : ""))];
}

function branchTold(found, choice) {
  const piece = html("b", {}, bdi(choice.piece));
  if (!found) return [html("p", {}, piece, " was not among the candidates of this step: its continuation of this hypothesis ranked too low. The search did not look further.")];
  const parents = new Set(found.nodes.map((node) => node.parent));
  const ends = found.nodes.filter((node) => !parents.has(node.index)).sort((a, b) => b.score - a.score);
  return [html("p", {}, "The search had considered ", piece, ` here and ${{ kept: "kept it", finished: "finished it", pruned: "dropped it at once" }[found.root.status]}. As far as it went:`),
    hypotheses(ends.slice(0, 4), (node) => node.status === "kept" ? "live at the end" : `${STATUS[node.status]} at step ${node.position}`),
    ends.length > 4 ? html("p", { class: "muted" }, `and ${ends.length - 4} more, in the tree below`) : null];
}

// --- the player ---------------------------------------------------------------------------------------------

function player(stageFigure) {
  const ways = lanes(data), map = { open: new Set(["encoder 1", "decoder 1"]), show: openBox, redraw: drawFigure };
  const at = { way: ways[0], t: 0, picked: null, box: null, timer: null };
  const wide = matchMedia("(min-width: 1000px)");
  const pictures = [maskFigure(), cacheFigure()].filter(Boolean);
  const tree = drawTree(data.tree);
  let figure = null, panels = [];

  const range = html("input", { type: "range", min: 1, step: 1, value: 1, "aria-label": "Step of decoding", oninput: () => { pause(); go(Number(range.value) - 1); } });
  const play = html("button", { class: "play", onclick: () => (at.timer ? pause() : start()) });
  const showPlaying = () => play.replaceChildren(icon(at.timer ? "pause" : "play"), at.timer ? "Pause" : "Play");
  const counter = html("span", { id: "player-step" });
  const told = html("p", { class: "way-text" }), picked = html("div", { class: "picked", "aria-live": "polite" });
  const wayButtons = ways.map((way) => html("button", { onclick: () => choose(way) }, way.name));
  put("ways", ...wayButtons);
  put("player", iconButton("first", "To the first step", () => { pause(); go(0); }), iconButton("back", "Back", () => { pause(); go(at.t - 1); }), play,
    iconButton("forward", "Forward", () => { pause(); go(at.t + 1); }), range, counter);
  put("map-tree", tree.scroller);

  const nSteps = () => Math.max(...at.way.lanes.map((lane) => lane.tokens.length));
  const isTranslation = () => at.way === ways[0];

  function choose(way) {
    pause();
    at.way = way;
    range.max = nSteps();
    wayButtons.forEach((one, i) => one.setAttribute("aria-pressed", String(ways[i] === way)));
    told.textContent = way.text;
    panels = way.lanes.map((lane) => distribution(lane, isTranslation() ? pick : null));
    put("step", told, html("div", { class: "lanes" }, panels.map((panel) => panel.node)),
      ...(isTranslation() ? [picked, html("div", { class: "pair" }, pictures.map((picture) => picture.node))] : []));
    byId("step").classList.toggle("single", isTranslation());
    byId("map-tree").hidden = byId("map-tree-name").hidden = !isTranslation();
    at.box = null;
    drawFigure();
    go(0, false);
  }

  function drawFigure() {
    const [lane] = at.way.lanes, s = data.settings;
    const room = byId("map-figure").clientWidth || 350;
    figure = drawMap({ width: Math.min(room, 560), settings: s, nTokens: data.stages.at(-1).shape.at(-1), source: data.source_pieces, inputs: lane.read,
      outputs: lane.tokens.map((token) => (lane.isGiven ? token.alternatives[0] : token).piece), hasLoop: !lane.isGiven, isRtl: getComputedStyle(byId("translation")).direction === "rtl", map,
      names: { source: isTranslation() && meanCross && room > 480 ? "the source; blue where cross-attention looks" : "the source", inputs: lane.isGiven ? "what it is given" : "what it has written", outputs: lane.isGiven ? "its most probable pieces" : "the next pieces" } });
    put("map-figure", figure.figure);
    showBox();
    mark();
    showResult();
  }

  function go(t, isMoving = true) {
    const forward = t === at.t + 1;
    at.t = Math.min(nSteps() - 1, Math.max(0, t));
    at.picked = at.box = null;
    showBox();
    range.value = at.t + 1;
    counter.textContent = `Step ${at.t + 1} of ${nSteps()}`;
    const isAnimated = isMoving && (forward || t === 0) && !still.matches;
    clearTimeout(at.later);
    mark();
    if (at.timer && isAnimated) {
      figure.hideLoop();
      at.later = setTimeout(showResult, RESULT);
    } else showResult();
    if (isAnimated) animate();
    if (at.timer && at.t === nSteps() - 1) pause();
  }

  const opacity = (nodes, of) => nodes.forEach((node, i) => { node.style.opacity = of(i); });
  const current = (nodes, index) => nodes.forEach((node, i) => node.classList.toggle("current", i === index));

  // Shows what the model reads at the present step.
  function mark() {
    const [lane] = at.way.lanes, t = Math.min(at.t, lane.tokens.length - 1);
    for (const nodes of [figure.inputs, figure.fans.inputs]) opacity(nodes, (i) => (i <= t || lane.isGiven ? 1 : 0));
    current(figure.inputs, t);
    const weights = isTranslation() && meanCross ? meanCross[t] : null;
    figure.source.forEach((chip, i) => { chip.querySelector(".heat").style.opacity = weights ? 0.6 * weights[i] / Math.max(...weights) : 0; });
  }

  // Shows what the model returns at the present step: the chosen piece, its alternatives and the hypotheses.
  function showResult() {
    const [lane] = at.way.lanes, t = Math.min(at.t, lane.tokens.length - 1);
    opacity(figure.outputs, (i) => (i <= t ? 1 : 0));
    current(figure.outputs, t);
    figure.showLoop(t);
    panels.forEach((panel) => panel.show(at.t, at.picked));
    if (!isTranslation()) return;
    pictures.forEach((picture) => picture.show(t));
    const found = at.picked && branch(data.tree, lane.tokens, t, at.picked);
    const shown = found && new Set(found.nodes.map((node) => node.index));
    for (let node = found?.root; node; node = data.tree[node.parent]) shown.add(node.index);
    tree.show(t + 1 === lane.tokens.length ? tree.last : t + 1, 0, shown); // after the last token, show all steps: the search may have continued after it finished the best hypothesis
    picked.replaceChildren(...(at.picked ? branchTold(found, at.picked) : aliveAt(t)).filter(Boolean));
  }

  // Animates a step: the last output moves down to the inputs, then the boxes light up one after another. Only
  // transforms and opacity change, which is cheap for the browser.
  function animate() {
    const glow = (nodes, from, to) => nodes.forEach((node, i) => node.querySelector(".heat")?.animate([{ opacity: 0 }, { opacity: 0.4 }, { opacity: 0 }],
      { duration: 320, delay: from + (i * (to - from)) / nodes.length }));
    const isFirst = at.t === 0; // the encoder runs only once, before the first step
    if (isFirst) glow(figure.encoder, 0, 500);
    glow(figure.decoder, isFirst ? 500 : 300, RESULT);
    const mover = (chips) => chips[at.t]?.querySelector(".mover");
    mover(figure.inputs)?.animate([{ transform: "translateY(14px)", opacity: 0 }, { transform: "none", opacity: 1 }], { duration: 300, delay: isFirst ? 0 : 250, fill: "backwards" });
    mover(figure.outputs)?.animate([{ transform: "translateY(14px)", opacity: 0 }, { transform: "none", opacity: 1 }], { duration: 300, delay: at.timer ? RESULT : 0, fill: "backwards" });
    if (at.t > 0 && !at.way.lanes[0].isGiven)
      figure.dot.animate([{ transform: "none", opacity: 1 }, { transform: `translateY(${figure.dot.way}px)`, opacity: 1 }], { duration: 320, easing: "ease-in" });
  }

  function pick(choice) {
    pause();
    at.picked = choice.token === at.picked?.token ? null : choice;
    showResult();
  }

  function start() {
    at.timer = setInterval(() => go(at.t + 1), PACE);
    showPlaying();
    go(at.t === nSteps() - 1 || at.t === 0 ? 0 : at.t + 1);
  }

  function pause() {
    clearInterval(at.timer);
    at.timer = null;
    showPlaying();
  }

  // --- boxes ---

  function openBox(spec, layer, name) {
    pause();
    at.box = name;
    const extra = spec.box === "layer" ? [html("p", {}, "The same as layer 1, with weights of its own."), ...headsOf(spec.part, layer, attention)] : spec.box === "attention" ? headsOf("decoder", 1, attention)
      : spec.box === "recurrent" && spec.part === "decoder" ? [html("p", {}, "The state of the last layer at each step stands beside the map, under “The translation”.")] : [];
    const close = html("button", { onclick: closeBox }, "Back to the step");
    put("box", html("div", { class: "box-head" }, html("h3", { tabindex: -1 }, spec.label), close),
      ...boxContent(spec, layer, stageFigure, extra, byId("beside").clientWidth - 150).flat(2));
    showBox();
    byId("box").scrollTop = 0;
    if (wide.matches) return;
    byId("box").querySelector("h3").focus({ preventScroll: true });
    byId("map-figure").querySelector("[aria-pressed=true]").scrollIntoView(); // scroll the chosen box into the part of the map that the sheet leaves free
  }

  function showBox() {
    byId("box").hidden = !at.box;
    byId("step").hidden = Boolean(at.box) && wide.matches; // on narrow screens, the box is a sheet over the lower half of the screen, and the step stays
    for (const node of byId("map-figure").querySelectorAll("[data-box]")) node.setAttribute("aria-pressed", String(node.getAttribute("aria-label") === at.box));
  }

  function closeBox() {
    const opener = byId("map-figure").querySelector("[aria-pressed=true]");
    at.box = null;
    showBox();
    opener?.focus();
  }

  byId("map").addEventListener("keydown", (event) => { if (event.key === "Escape" && at.box) closeBox(); });
  let width = byId("map-figure").clientWidth;
  new ResizeObserver(() => { const now = byId("map-figure").clientWidth; if (now !== width) { width = now; drawFigure(); } }).observe(byId("map-figure"));
  addEventListener("beforeprint", () => { pause(); at.box = null; showBox(); go(nSteps() - 1, false); });
  choose(ways[0]);
}
