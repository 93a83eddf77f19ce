"use strict";
// The tree of hypotheses of a search. `drawTree` makes the figure; `searchTree` adds a slider that selects a step, and
// a table of the step's candidates.

const STATUS = { kept: "kept", finished: "finished", pruned: "dropped" };

// Returns the pieces of the hypothesis that ends in `node`. `nodes` is a list of nmt.insight.search_tree.SearchNode.
function pathOf(nodes, node) {
  const pieces = [];
  for (let one = node; one; one = one.parent === null ? null : nodes[one.parent]) pieces.unshift(one.piece);
  return pieces;
}

// Draws the figure in a box that scrolls. Its function `show(step, later, shown)` scrolls to a step, and gives all
// later nodes the opacity `later`. If `shown`, a set of indices, is given, it fades all nodes outside the set instead.
function drawTree(nodes) {
  const last = Math.max(0, ...nodes.map((node) => node.position));
  const columnWidth = Math.max(70, 28 + Math.max(...nodes.map((node) => textWidth(node.piece))));
  const rank = new Map(), perStep = [];
  for (const node of nodes) {
    const found = (perStep[node.position] ??= []);
    rank.set(node.index, found.length);
    found.push(node);
  }
  const most = Math.max(1, ...perStep.filter(Boolean).map((found) => found.length));
  const x = (node) => 20 + node.position * columnWidth, y = (node) => 18 + rank.get(node.index) * 24;
  const start = [22, 18];
  const edges = [], marks = [];
  for (const node of nodes) {
    const [fromX, fromY] = node.parent === null ? start : [x(nodes[node.parent]), y(nodes[node.parent])];
    const labelEnd = node.parent === null ? 14 : 14 + textWidth(nodes[node.parent].piece);
    const sx = Math.min(fromX + labelEnd, x(node) - 14);
    const bend = (x(node) - 8 - sx) / 2;
    const color = node.is_best ? "var(--text)" : node.is_greedy ? "var(--muted)" : node.status === "pruned" ? "var(--line)" : "var(--accent)";
    edges.push(svg("path", { class: "edge", "data-step": node.position, "data-node": node.index, fill: "none", stroke: color,
      "stroke-width": node.is_best ? 3 : node.is_greedy ? 2.4 : 1.4, "stroke-dasharray": node.is_greedy && !node.is_best ? "4 3" : null,
      d: `M${sx} ${fromY}c${bend} 0 ${bend} ${y(node) - fromY} ${2 * bend} ${y(node) - fromY}` }));
    const dotFill = node.status === "finished" ? "var(--good)" : node.status === "kept" ? "var(--accent)" : "var(--background)";
    const outline = node.status === "finished" ? "var(--good)" : node.status === "kept" ? "var(--accent)" : "var(--muted)";
    const dot = node.status === "finished"
      ? svg("rect", { x: x(node) - 5, y: y(node) - 5, width: 10, height: 10, fill: dotFill })
      : svg("circle", { cx: x(node), cy: y(node), r: 4.5, fill: dotFill, stroke: outline, "stroke-width": 1.5 });
    marks.push(svg("g", { class: "node", "data-step": node.position, "data-node": node.index }, dot, svg("text", { x: x(node) + 9, y: y(node),
      "dominant-baseline": "central", class: node.status === "pruned" ? "muted" : null, "font-weight": node.is_best ? "bold" : null }, node.piece),
    svg("title", {}, `${piecesToText(pathOf(nodes, node))}: log-probability ${node.log_prob.toFixed(3)}, score ${node.score.toFixed(3)}, ${STATUS[node.status]}`)));
  }
  const tree = svg("svg", { width: 40 + last * columnWidth + Math.max(0, ...(perStep[last] ?? []).map((node) => textWidth(node.piece))), height: 20 + most * 24, role: "img",
    "aria-label": "Tree of hypotheses; the table below says the same for one step" },
  edges, svg("text", { x: 2, y: 18, "dominant-baseline": "central" }, "<s>"), marks);
  const scroller = html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Tree of hypotheses" }, tree);
  const drawn = [...tree.querySelectorAll("[data-step]")].map((mark) => ({ mark, node: nodes[mark.dataset.node], opacity: 1 }));
  const show = (step, later, shown = null) => {
    for (const one of drawn) {
      const opacity = shown ? (shown.has(one.node.index) ? 1 : 0.15) : one.node.position > step ? later : 1;
      if (opacity === one.opacity) continue; // skip nodes that do not change: there are thousands
      one.mark.setAttribute("opacity", one.opacity = opacity);
      one.mark.style.display = opacity ? "" : "none"; // hide transparent nodes, because the browser would otherwise draw them in every frame
    }
    const at = 20 + step * columnWidth;
    if (at > scroller.scrollLeft + scroller.clientWidth - columnWidth || at < scroller.scrollLeft) scroller.scrollLeft = at - scroller.clientWidth / 2;
  };
  return { scroller, show, last, perStep };
}

// Returns the figure, the slider, a legend and the table as a list of elements.
function searchTree(nodes, showGreedy = false) {
  const { scroller, show: showTree, last, perStep } = drawTree(nodes);
  const hint = html("p", { class: "muted hint" }, "The tree is wide: scroll it, or move the slider.");
  new ResizeObserver(() => { hint.hidden = scroller.scrollWidth <= scroller.clientWidth; }).observe(scroller);
  const kinds = [["best", "path of the translation"], ["kept", "kept"], ["finished", "finished"], ["pruned", "dropped"]];
  if (showGreedy) kinds.push(["greedy", "path of greedy search"]);
  const legend = html("p", { class: "legend" }, kinds.map(([kind, name]) => html("span", {}, html("i", { class: `dot ${kind}` }), name)));
  const range = html("input", { type: "range", min: 1, max: last, step: 1, value: 1, "aria-label": "Step of the search" });
  const stepName = html("span", { id: "step-name" });
  const stepTable = html("div", { id: "step-table", class: "scroll", tabindex: 0, role: "group", "aria-label": "Candidates of the step" });
  const show = () => {
    const step = Number(range.value);
    stepName.textContent = `${step} of ${last}`;
    showTree(step, 0.15);
    stepTable.replaceChildren(table(["rank", "hypothesis", "log-probability", "score", "piece's probability", "outcome"],
      (perStep[step] ?? []).map((node, i) => [i + 1, html("span", { dir: "auto" }, piecesToText(pathOf(nodes, node)) || node.piece), node.log_prob.toFixed(3),
        node.score.toFixed(3), percent(Math.exp(node.token_log_prob)), STATUS[node.status] + (node.is_best ? ", on the way to the translation" : "")])));
  };
  range.addEventListener("input", show);
  show();
  showTree(last, 1);
  scroller.scrollLeft = 0;
  return [html("div", { class: "controls" }, html("label", {}, "Step ", range), stepName), scroller, hint, legend, stepTable];
}
