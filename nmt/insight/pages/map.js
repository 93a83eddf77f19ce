"use strict";
// Figure 1 of "Attention is all you need", drawn for one model, with the pieces that enter and leave it.

const GAP = 8; // between boxes, pixels
const CHIP = 24; // height of a row of pieces
const SIDE = { outer: 20, inner: 10 }; // room beside the boxes, for the residual connection and the frame of a layer
const still = matchMedia("(prefers-reduced-motion: reduce)");

// --- what the figure consists of ----------------------------------------------------------------------------

const POSITION_NAMES = { sinusoidal: "+ sines of position", learned: "+ learned positions", rotary: "× √D", none: "× √D, no positions" };

// A box is {part, box, label, note, code}; `part` and `box` are those of its stages, `code` are keys of `data.code`.
function subLayers(part, s) {
  const heads = s.n_heads === 1 ? "1 head" : `${s.n_heads} heads`;
  const positioned = [heads, ...(s.positions === "rotary" ? ["rotary"] : [])].join(", ");
  const self = { part, box: "self-attention", label: part === "decoder" ? "Masked self-attention" : "Self-attention", short: part === "decoder" ? "Masked attention" : null, note: positioned, code: ["scaled_dot_product_attention", "MultiHeadAttention.merge_heads", "SelfAttention.project"] };
  const cross = { part, box: "cross-attention", label: "Cross-attention", note: heads, code: ["scaled_dot_product_attention", "MultiHeadAttention.merge_heads"], readsMemory: true };
  const feedForward = { part, box: "feed-forward", label: "Feed-forward", note: `${s.d_model} → ${s.d_ff} → ${s.d_model}`, code: ["FeedForward.forward"] };
  if (part === "decoder") self.code.splice(1, 0, "causal_mask");
  return part === "decoder" ? [self, cross, feedForward] : [self, feedForward];
}

function beforeLayers(part, s) {
  const embedding = { part, box: "embedding", label: "Embedding", note: `${s.d_model} numbers a piece`, code: ["Seq2Seq.scaled_embedding"] };
  if (s.architecture === "rnn") return [embedding];
  return [embedding, { part, box: "positions", label: POSITION_NAMES[s.positions], code: ["Transformer.embed"] }];
}

function afterLayers(part, s, nTokens) {
  const isRecurrent = s.architecture === "rnn", preNorm = !isRecurrent && s.norm === "pre";
  const memory = { part, box: "memory", label: preNorm ? "Layer norm → memory" : "Memory", short: "Norm → memory", code: [isRecurrent ? "RecurrentLayer.forward" : "Transformer.encode"] };
  if (part === "encoder") return isRecurrent && s.attention === "none" ? [] : [memory];
  const out = { part, box: "decoder output", label: preNorm ? "Layer norm" : "Decoder output", code: ["Transformer.decode"] };
  const attention = { part, box: "attention", label: "Attention", note: s.attention.replace("_", " "), code: ["GlobalAttention.forward"], readsMemory: true };
  const middle = !isRecurrent ? [out] : s.attention === "none" ? [] : [attention];
  return [...middle, { part: "output", box: "logits", label: "Linear", note: `${s.d_model} → ${nTokens} pieces`, code: ["Seq2Seq.forward"] },
    { part: "output", box: "probabilities", label: "Softmax", code: ["Seq2Seq.forward"] }];
}

// --- drawing ------------------------------------------------------------------------------------------------

const line = (d, kind = "") => svg("path", { class: `wire ${kind}`, d });

// A line that ends at (x, y) with a head that points to the right, up (-90) or to the left (180 degrees).
function arrow(d, x, y, angle, kind = "") {
  return svg("g", { class: `arrow ${kind}` }, line(d, kind), svg("path", { class: "head", d: "M-7 -3.5L0 0L-7 3.5z", transform: `translate(${x} ${y}) rotate(${angle})` }));
}

// Makes an SVG element a button for mouse, touch and keyboard.
function pressable(node, name, act, attributes = {}) {
  fill(node, { role: "button", tabindex: 0, "aria-label": name, onclick: act, ...attributes }, []);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
  return node;
}

// Places pieces in rows of a width; returns a position for each and the height of all.
function chipRows(pieces, width, isRtl) {
  let x = 0, row = 0;
  const places = pieces.map((piece) => {
    let text = piece;
    while (text.length > 2 && textWidth(text) > width - 14) text = `${text.slice(0, -2)}…`;
    const w = Math.max(20, textWidth(text) + 12);
    if (x > 0 && x + w > width) { x = 0; row += 1; }
    const place = { text, w, x: isRtl ? width - x - w : x, y: row * (CHIP + 4) };
    x += w + 4;
    return place;
  });
  return { places, height: (row + 1) * (CHIP + 4) };
}

function chips(pieces, x, y, width, isRtl) {
  return chipRows(pieces, width, isRtl).places.map((place, i) => svg("g", { class: "chip", transform: `translate(${x + place.x} ${y + place.y})` },
    svg("g", { class: "mover" }, svg("rect", { class: "frame", width: place.w, height: CHIP, rx: 5 }),
      svg("rect", { class: "heat", width: place.w, height: CHIP, rx: 5 }),
      svg("text", { x: place.w / 2, y: CHIP / 2, "text-anchor": "middle", "dominant-baseline": "central" }, place.text),
      svg("title", {}, pieces[i]))));
}

// One column of the figure, from below to above. `draw` methods move `y` up and collect what they draw.
class Column {
  constructor(part, x, width, lane, map) {
    Object.assign(this, { part, x, width, y: -GAP / 2, lane, map, frames: [], wires: [], boxes: [], memoryInputs: [], states: [] });
    this.middle = x + width / 2;
  }

  box(spec, layer = null) {
    const height = spec.note ? 35 : 25;
    this.y -= height;
    const place = layer === null ? "" : `, layer ${layer}`;
    const of = / (norm|add)$/.test(spec.box) ? ` of ${spec.box.replace(/ \w+$/, "")}` : "";
    const name = `${{ encoder: "Encoder", decoder: "Decoder", output: "Output" }[spec.part]}${place}: ${spec.label}${of}${spec.note ? `, ${spec.note}` : ""}`;
    const label = spec.short && textWidth(spec.label) > this.width - 8 ? spec.short : spec.label;
    const texts = [svg("text", { x: this.width / 2, y: spec.note ? 12 : 13, "text-anchor": "middle", "dominant-baseline": "central" }, label)];
    if (spec.note) texts.push(svg("text", { class: "note", x: this.width / 2, y: 25.5, "text-anchor": "middle", "dominant-baseline": "central" }, spec.note));
    const node = pressable(svg("g", { class: `box ${spec.code ? "" : "folded"}`, transform: `translate(${this.x} ${this.y})` },
      svg("rect", { class: "frame", width: this.width, height, rx: 6 }), svg("rect", { class: "heat", width: this.width, height, rx: 6 }), texts),
    name, () => (spec.act ? spec.act() : this.map.show(spec, layer, name)),
    spec.act ? { "aria-expanded": "false" } : { "aria-pressed": "false", "data-box": `${spec.part} ${spec.box}` });
    this.boxes.push(node);
    if (spec.readsMemory) this.memoryInputs.push(this.y + height / 2);
    this.y -= GAP;
    return node;
  }

  // A sub-layer within its residual connection: x + f(norm(x)), or norm(x + f(x)).
  subLayer(spec, preNorm) {
    this.y -= 8;
    const fork = this.y + 7, outer = this.lane < 0 ? this.x - 11 : this.x + this.width + 11;
    const residual = { part: spec.part, code: ["Residual.forward"] };
    if (preNorm) this.box({ ...residual, box: `${spec.box} norm`, label: "Layer norm" }, 1);
    this.box(spec, 1);
    const end = preNorm ? this.middle - 9 * Math.sign(this.middle - outer) : this.lane < 0 ? this.x : this.x + this.width;
    const y = this.y - (preNorm ? 12 : 13);
    this.wires.push(arrow(`M${this.middle} ${fork}H${outer}V${y}H${end}`, end, y, this.lane < 0 ? 0 : 180));
    if (preNorm) this.add(`${spec.box} add`, residual);
    else this.box({ ...residual, box: `${spec.box} add`, label: "Add & norm" }, 1);
  }

  add(box, residual) {
    this.y -= 24;
    const name = `${this.part === "encoder" ? "Encoder" : "Decoder"}, layer 1: Add after ${box.replace(" add", "")}`;
    const node = pressable(svg("g", { class: "box", transform: `translate(${this.middle} ${this.y + 12})` },
      svg("circle", { class: "area", r: 12 }), svg("circle", { class: "frame", r: 9 }), svg("circle", { class: "heat", r: 9 }), svg("path", { class: "plus", d: "M-5 0H5M0 -5V5" })),
    name, () => this.map.show({ ...residual, box, label: "Add" }, 1, name), { "aria-pressed": "false", "data-box": `${this.part} ${box}` });
    this.boxes.push(node);
    this.y -= GAP;
  }

  // A frame around what `draw` draws, with a button that folds it.
  frame(label, fold, draw) {
    const bottom = this.y + 4;
    this.y -= GAP;
    draw();
    this.y -= 16;
    const x = this.x - (this.lane < 0 ? SIDE.outer : SIDE.inner), height = bottom - this.y;
    this.frames.push(svg("rect", { class: "layer", x, y: this.y, width: this.width + SIDE.outer + SIDE.inner, height, rx: 10 }));
    this.boxes.push(pressable(svg("g", { class: "fold", transform: `translate(${x} ${this.y})` },
      svg("rect", { class: "frame", width: textWidth(label) + 36, height: 24, rx: 6 }),
      svg("text", { x: 10, y: 12, "dominant-baseline": "central" }, `${label}  −`)), `${this.part}: fold ${label}`, fold, { "aria-expanded": "true" }));
    this.y -= GAP;
  }

  layers(s, nLayers) {
    const { open } = this.map, isRecurrent = s.architecture === "rnn";
    const change = (key) => () => { open.has(key) ? open.delete(key) : open.add(key); this.map.redraw(); };
    const readsMemory = this.part === "decoder" && !isRecurrent;
    if (isRecurrent) {
      const direction = this.part === "encoder" ? "both directions" : "left to right";
      for (let n = 1; n <= nLayers; n++) {
        this.box({ part: this.part, box: "recurrent", label: `${s.cell.toUpperCase()} ${n}`, note: direction, code: ["RecurrentLayer.forward"] }, n);
        this.states.push(this.y + GAP + 19);
      }
      return;
    }
    const first = `${this.part} 1`, rest = `${this.part} rest`;
    if (open.has(first)) this.frame("Layer 1", change(first), () => subLayers(this.part, s).forEach((one) => this.subLayer(one, s.norm === "pre")));
    else this.box({ part: this.part, label: "Layer 1  +", readsMemory, act: change(first) });
    if (nLayers === 1) return;
    const layer = (n) => this.box({ part: this.part, box: "layer", label: `Layer ${n}`, note: "as layer 1", code: ["scaled_dot_product_attention", "MultiHeadAttention.merge_heads"], readsMemory }, n);
    if (nLayers === 2) return layer(2);
    const name = `Layers 2–${nLayers}`;
    if (!open.has(rest)) return this.box({ part: this.part, label: `${name}  × ${nLayers - 1}  +`, readsMemory, act: change(rest) });
    this.frame(name, change(rest), () => { for (let n = 2; n <= nLayers; n++) layer(n); });
  }
}

// The whole figure. `map` has open: the unfolded layers, show(spec, layer): called for a chosen box, and redraw().
// Returns the SVG and what changes in it: the pieces (source, inputs, outputs), the boxes of each column, and the dot
// that carries an output back to the inputs.
function drawMap({ width, settings: s, nTokens, source, inputs, outputs, names, hasLoop, isRtl, map }) {
  const isNarrow = width < 480, lane = 20, gutter = isNarrow ? 12 : 48, half = (width - lane - gutter) / 2;
  const start = half + gutter; // left edge of the decoder
  const room = half - SIDE.outer - SIDE.inner;
  const encoder = new Column("encoder", SIDE.outer, room, -1, map), decoder = new Column("decoder", start + SIDE.inner, room, 1, map);
  for (const column of [encoder, decoder]) {
    for (const spec of beforeLayers(column.part, s)) column.box(spec);
    column.layers(s, column === encoder ? s.n_encoder_layers : s.n_decoder_layers);
    for (const spec of afterLayers(column.part, s, nTokens)) column.box(spec);
  }
  const outputWidth = chipRows(outputs, half, isRtl).height > 7 * CHIP ? width - lane : half;
  const outputTop = decoder.y - 4 - chipRows(outputs, outputWidth, isRtl).height, top = outputTop - 20;
  const inputTop = 16, sourceEnd = inputTop + chipRows(source, half, false).height, inputRows = chipRows(inputs, half, isRtl), inputEnd = inputTop + inputRows.height;
  const bottom = Math.max(sourceEnd, inputEnd) + 18;
  const pieces = {
    source: chips(source, 0, inputTop, half, false), inputs: chips(inputs, start, inputTop, half, isRtl),
    outputs: chips(outputs, width - lane - outputWidth, outputTop, outputWidth, isRtl) };
  const memoryLane = half + gutter / 2 - (isNarrow ? 2 : 0), edge = width - 7;
  const wires = [line(`M${encoder.middle} ${inputTop - 4}V${encoder.y + GAP}`), arrow(`M${decoder.middle} ${inputTop - 4}V${decoder.y + 4}`, decoder.middle, decoder.y + 2, -90),
    decoder.memoryInputs.length ? line(`M${encoder.middle} ${encoder.y + GAP}V${encoder.y}H${memoryLane}`, "memory") : null,
    decoder.memoryInputs.map((y) => arrow(`M${memoryLane} ${encoder.y}V${y}H${decoder.x - 1}`, decoder.x - 1, y, 0, "memory")),
    decoder.states.map((y) => arrow(`M${encoder.x + room} ${y}H${decoder.x - 1}`, decoder.x - 1, y, 0)), // the final state of a layer
    hasLoop && arrow("", 0, 0, 180, "loop")].filter(Boolean);
  const dot = svg("circle", { class: "dot-of-loop", cx: edge, cy: outputTop + CHIP / 2, r: 5 });
  // The way of a written piece back to the inputs, where it is read at the next step.
  const outputRows = chipRows(outputs, outputWidth, isRtl);
  const showLoop = (t) => {
    if (!hasLoop) return;
    const from = outputRows.places[t], to = inputRows.places[t + 1];
    const x = width - lane - outputWidth + from.x + from.w + 4, y = outputTop + from.y + CHIP / 2;
    const end = to && start + to.x + to.w + 6, endY = to && inputTop + to.y + CHIP / 2;
    inputsLabel.setAttribute("y", inputTop + (to ?? inputRows.places[t]).y + CHIP + 16); // below the last row that is in use
    const loop = wires.at(-1);
    loop.style.display = to ? "" : "none";
    if (!to) return;
    loop.firstChild.setAttribute("d", `M${x} ${y}H${edge}V${endY}H${end}`);
    loop.lastChild.setAttribute("transform", `translate(${end} ${endY}) rotate(180)`);
    fill(dot, { cx: edge, cy: y }, []);
    dot.way = endY - y;
  };
  const label = (text, x, y) => svg("text", { class: "note muted", x, y }, text);
  const inputsLabel = label(names.inputs, start, inputEnd + 12);
  const figure = svg("svg", { class: "map", width, height: bottom - top, viewBox: `0 ${top} ${width} ${bottom - top}`, role: "group", "aria-label": "The model, as figure 1 of the paper draws it" },
    encoder.frames, decoder.frames, wires, encoder.wires, decoder.wires, encoder.boxes, decoder.boxes, Object.values(pieces), dot,
    label(names.source, 0, sourceEnd + 12), inputsLabel, label(names.outputs, width - lane - outputWidth, top + 12));
  return { figure, ...pieces, encoder: encoder.boxes, decoder: decoder.boxes, dot, showLoop };
}
