"use strict";
// The map: figure 1 of "Attention is all you need" for one model, with the pieces that the model reads and writes.

// All sizes are in pixels.
const GAP = 6; // distance between boxes
const CHIP = 24, ROW = CHIP + 4; // height of a piece, and of a row of pieces
const FAN = 22; // height of the lines between pieces and the boxes that read or write them
const SIDE = { outer: 20, inner: 10 }; // width beside the boxes for the residual connection and the frame of a layer
const still = matchMedia("(prefers-reduced-motion: reduce)");

// --- what the figure consists of ----------------------------------------------------------------------------

const POSITION_NAMES = { sinusoidal: "+ sines of position", marian: "+ sines of position", learned: "+ learned positions", rotary: "× √D", none: "× √D, no positions" };

// The functions below return boxes of a part of the model. A box is {part, box, label, short, note, code, readsMemory}:
// `part` and `box` are the same as in its stages, `short` replaces a label that is too wide, and `code` has keys of
// `data.code`.
function subLayers(part, s) {
  const heads = s.n_heads === 1 ? "1 head" : `${s.n_heads} heads`;
  const positioned = [heads, ...(s.positions === "rotary" ? ["rotary"] : []), ...(s.attention_window ? [`window ${s.attention_window}`] : [])].join(", ");
  const self = { part, box: "self-attention", label: part === "decoder" ? "Masked self-attention" : "Self-attention", short: part === "decoder" ? "Masked attention" : null, note: positioned, code: ["scaled_dot_product_attention", "MultiHeadAttention.merge_heads", "SelfAttention.project"] };
  const cross = { part, box: "cross-attention", label: "Cross-attention", note: heads, code: ["scaled_dot_product_attention", "MultiHeadAttention.merge_heads"], readsMemory: true };
  const feedForward = { part, box: "feed-forward", label: "Feed-forward", note: `${s.d_model} → ${s.d_ff} → ${s.d_model}`, code: ["FeedForward.forward"] };
  if (part === "decoder") self.code.splice(1, 0, "causal_mask");
  if (s.attention_window) self.code.splice(1, 0, "window_mask");
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

// Draws the line `d` with an arrowhead at its end (x, y). The arrowhead points to the right if `angle` is 0, up if
// `angle` is -90, and to the left if `angle` is 180.
function arrow(d, x, y, angle, kind = "") {
  return svg("g", { class: `arrow ${kind}` }, line(d, kind), svg("path", { class: "head", d: "M-7 -3.5L0 0L-7 3.5z", transform: `translate(${x} ${y}) rotate(${angle})` }));
}

// Turns an SVG element into a button that works with mouse, touch and keyboard.
function pressable(node, name, act, attributes = {}) {
  fill(node, { role: "button", tabindex: 0, "aria-label": name, onclick: act, ...attributes }, []);
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
  return node;
}

// Arranges pieces in rows of the given width. Rows are centered at x = `axis` if they fit there. Returns a place for
// each piece, and the height of all rows.
function chipRows(pieces, width, axis, isRtl) {
  const rows = [];
  let x = Infinity;
  const places = pieces.map((piece) => {
    let text = piece;
    while (text.length > 2 && textWidth(text) > width - 14) text = `${text.slice(0, -2)}…`;
    const w = Math.max(20, textWidth(text) + 12);
    if (x + w > width) { x = 0; rows.push([]); }
    const place = { text, w, x, y: (rows.length - 1) * ROW };
    rows.at(-1).push(place);
    x += w + 4;
    return place;
  });
  for (const row of rows) {
    const end = row.at(-1).x + row.at(-1).w, shift = Math.max(0, Math.min(width - end, axis - end / 2));
    for (const place of row) place.x = shift + (isRtl ? end - place.x - place.w : place.x);
  }
  return { places, height: rows.length * ROW };
}

function chips(pieces, places, x, y) {
  return places.map((place, i) => svg("g", { class: "chip", transform: `translate(${x + place.x} ${y + place.y})` },
    svg("g", { class: "mover" }, svg("rect", { class: "frame", width: place.w, height: CHIP, rx: 5 }),
      svg("rect", { class: "heat", width: place.w, height: CHIP, rx: 5 }),
      svg("text", { x: place.w / 2, y: CHIP / 2, "text-anchor": "middle", "dominant-baseline": "central" }, place.text),
      svg("title", {}, pieces[i]))));
}

// Returns the path of a curve from (x, y) up to (toX, toY).
const curve = (x, y, toX, toY) => `M${x} ${y}C${x} ${y - FAN / 2} ${toX} ${toY + FAN / 2} ${toX} ${toY}`;

// Draws colored marks where queries, keys and values enter an attention box.
function inlets(spec, width, height) {
  const below = (name, x) => svg("rect", { x: x - 4, y: height - 2, width: 8, height: 4, fill: `var(--${name})` });
  const left = (name, y) => svg("rect", { x: -2, y: y - 4, width: 4, height: 8, fill: `var(--${name})` });
  if (spec.box === "self-attention") return ["q", "k", "v"].map((name, i) => below(name, width / 2 + 12 * (i - 1)));
  return spec.box === "cross-attention" ? [below("q", width / 2), left("k", height / 2 - 6), left("v", height / 2 + 6)] : [];
}

// One column of the figure, drawn from bottom to top. Each method that draws an element adds it to a list of the
// column, and moves `y` up to the place of the next element.
class Column {
  constructor(part, x, width, lane, map) {
    Object.assign(this, { part, x, width, y: -GAP / 2, lane, map, frames: [], wires: [], boxes: [], memoryInputs: [], states: [] });
    this.middle = x + width / 2;
  }

  box(spec, layer = null) {
    const height = spec.note ? 33 : 23;
    this.y -= height;
    const place = layer === null ? "" : `, layer ${layer}`;
    const of = / (norm|add)$/.test(spec.box) ? ` of ${spec.box.replace(/ \w+$/, "")}` : "";
    const name = `${{ encoder: "Encoder", decoder: "Decoder", output: "Output" }[spec.part]}${place}: ${spec.label}${of}${spec.note ? `, ${spec.note}` : ""}`;
    const label = spec.short && textWidth(spec.label) > this.width - 8 ? spec.short : spec.label;
    const texts = [svg("text", { x: this.width / 2, y: spec.note ? 11 : 12, "text-anchor": "middle", "dominant-baseline": "central" }, label)];
    if (spec.note) texts.push(svg("text", { class: "note", x: this.width / 2, y: 24, "text-anchor": "middle", "dominant-baseline": "central" }, spec.note));
    const node = pressable(svg("g", { class: `box ${spec.code ? "" : "folded"}`, transform: `translate(${this.x} ${this.y})` },
      svg("rect", { class: "frame", width: this.width, height, rx: 6 }), svg("rect", { class: "heat", width: this.width, height, rx: 6 }), texts, inlets(spec, this.width, height)),
    name, () => (spec.act ? spec.act() : this.map.show(spec, layer, name)),
    spec.act ? { "aria-expanded": "false" } : { "aria-pressed": "false", "data-box": `${spec.part} ${spec.box}` });
    this.boxes.push(node);
    if (spec.readsMemory) this.memoryInputs.push(this.y + height / 2);
    this.y -= GAP;
    return node;
  }

  // Draws a sub-layer f with its residual connection: x + f(norm(x)) if pre-norm, else norm(x + f(x)).
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

  // Calls `draw`, and draws a frame around its boxes. `fold` is called when the button of the frame is pressed.
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

// Draws the whole figure. `map` has the set `open` of unfolded layers, and two functions: show(spec, layer, name) is
// called when a box is chosen, redraw() when layers are folded or unfolded. Returns the SVG, its elements that change
// (the pieces, the lines from the inputs, the boxes of each column, the dot that moves from an output back to the
// inputs), and two functions that show and hide the way of an output.
function drawMap({ width, settings: s, nTokens, source, inputs, outputs, names, hasLoop, isRtl, map }) {
  const isNarrow = width < 480, lane = 20, gutter = isNarrow ? 12 : 48, half = (width - lane - gutter) / 2;
  const start = half + gutter; // x of the decoder's left edge
  const room = half - SIDE.outer - SIDE.inner;
  const encoder = new Column("encoder", SIDE.outer, room, -1, map), decoder = new Column("decoder", start + SIDE.inner, room, 1, map);
  for (const column of [encoder, decoder]) {
    for (const spec of beforeLayers(column.part, s)) column.box(spec);
    column.layers(s, column === encoder ? s.n_encoder_layers : s.n_decoder_layers);
    for (const spec of afterLayers(column.part, s, nTokens)) column.box(spec);
  }
  const inputTop = FAN, outputRows = chipRows(outputs, width - lane, decoder.middle, isRtl);
  const outputTop = decoder.y + GAP - FAN - outputRows.height + ROW - CHIP, top = outputTop - 20;
  const sourceRows = chipRows(source, half, encoder.middle, false), inputRows = chipRows(inputs, half, decoder.middle - start, isRtl);
  const sourceEnd = inputTop + sourceRows.height, inputEnd = inputTop + inputRows.height, bottom = Math.max(sourceEnd, inputEnd + 10) + 18;
  const pieces = { source: chips(source, sourceRows.places, 0, inputTop), inputs: chips(inputs, inputRows.places, start, inputTop),
    outputs: chips(outputs, outputRows.places, 0, outputTop) };
  const fan = (places, x, to) => places.map((place) => svg("path", { class: "wire fan", d: curve(x + place.x + place.w / 2, inputTop + place.y, to, 0) }));
  // The lines from the pieces to the embedding. Lines from the second or a later row run behind the first row.
  // Therefore the source has lines from its first row only. The inputs have lines from all rows, but in later rows,
  // `showLoop` shows only the line of the present step.
  const fans = { source: fan(sourceRows.places.filter((place) => place.y === 0), 0, encoder.middle), inputs: fan(inputRows.places, start, decoder.middle) };
  const memoryLane = half + gutter / 2 - (isNarrow ? 2 : 0), edge = width - 7;
  const wires = [line(`M${encoder.middle} 0V${encoder.y + GAP}`), line(`M${decoder.middle} 0V${decoder.y + GAP}`),
    decoder.memoryInputs.length ? line(`M${encoder.middle} ${encoder.y + GAP}V${encoder.y}H${memoryLane}`, "memory") : null,
    decoder.memoryInputs.map((y) => arrow(`M${memoryLane} ${encoder.y}V${y}H${decoder.x - 3}`, decoder.x - 2, y, 0, "memory")),
    decoder.states.map((y) => arrow(`M${encoder.x + room} ${y}H${decoder.x - 1}`, decoder.x - 1, y, 0))]; // the final state of an encoder layer is the initial state of the decoder layer
  const chosen = arrow("", 0, 0, -90), loop = arrow("", 0, 0, -90, "loop"), next = svg("rect", { class: "next", height: CHIP, rx: 5 });
  const dot = svg("circle", { class: "dot-of-loop", cx: edge, cy: outputTop + CHIP / 2, r: 5 });
  const point = ([path, head], d, x, y) => { path.setAttribute("d", d); head.setAttribute("transform", `translate(${x} ${y}) rotate(-90)`); };
  // Shows the way of the piece that step t writes: out of the model, and back to the inputs, where the next step reads
  // it.
  const showLoop = (t) => {
    const from = outputRows.places[t], to = inputRows.places[t + 1], x = from.x + from.w / 2, y = outputTop + from.y;
    point(chosen.children, curve(decoder.middle, decoder.y + GAP, x, y + CHIP + 4), x, y + CHIP + 1);
    const below = hasLoop ? inputTop + (to ?? inputRows.places[t]).y + CHIP : inputEnd; // y of the bottom of the last row of inputs that is in use
    inputsLabel.setAttribute("y", below + 24);
    fans.inputs.forEach((path, i) => { path.style.display = inputRows.places[i].y === 0 || i === t ? "" : "none"; });
    chosen.style.display = "";
    for (const node of [loop, next]) node.style.display = hasLoop && to ? "" : "none";
    if (!hasLoop || !to) return;
    point(loop.children, `M${from.x + from.w + 2} ${y + CHIP / 2}H${edge}V${below + 10}H${start + to.x + to.w / 2}V${below + 4}`, start + to.x + to.w / 2, below + 1);
    fill(next, { x: start + to.x, y: inputTop + to.y, width: to.w }, []);
    fill(dot, { cx: edge, cy: y + CHIP / 2 }, []);
    dot.way = below + 10 - y - CHIP / 2;
  };
  const hideLoop = () => { for (const node of [chosen, loop, next]) node.style.display = "none"; }; // used until the model has chosen a piece
  const label = (text, x, y, anchor = "middle") => svg("text", { class: "note muted", x, y, "text-anchor": anchor }, text);
  const inputsLabel = label(names.inputs, decoder.middle, inputEnd + 24);
  const figure = svg("svg", { class: "map", width, height: bottom - top, viewBox: `0 ${top} ${width} ${bottom - top}`, role: "group", "aria-label": s.architecture === "rnn" ? "The layers of the recurrent model" : "The model, as figure 1 of the paper draws it" },
    encoder.frames, decoder.frames, wires, encoder.wires, decoder.wires, Object.values(fans), chosen, loop, next, encoder.boxes, decoder.boxes, Object.values(pieces), dot,
    label(names.source, Math.max(encoder.middle, textWidth(names.source) / 2), sourceEnd + 12), inputsLabel, label(names.outputs, Math.min(...outputRows.places.map((place) => place.x)), top + 12, "start"));
  return { figure, ...pieces, fans, encoder: encoder.boxes, decoder: decoder.boxes, dot, showLoop, hideLoop };
}
