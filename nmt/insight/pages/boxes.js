"use strict";
// What a box of the map shows: its formula, its tensors, and the lines of code that compute it.

// Formulas of the boxes, with {symbols} that have the color of the tensor they stand for.
function formulasOf(spec, s) {
  const preNorm = s.norm === "pre", source = { pre: "{n}", post: "{x}" }[s.norm];
  const layers = { encoder: s.n_encoder_layers, decoder: s.n_decoder_layers }[spec.part];
  const scores = { scaled_dot: "{Q} {K}ᵀ / √d", dot: "{Q} {K}ᵀ", additive: "vᵀ tanh({Q} + {K})", general: "{Q} W {K}ᵀ" }[s.attention];
  const residual = preNorm ? "{y} = {x} + sub-layer({n})" : "{y} = LayerNorm({x} + sub-layer({x}))";
  const added = { sinusoidal: " + sines and cosines of its position", learned: " + learned vector of its position", rotary: "", none: "" }[s.positions];
  const [name, kind] = (spec.box ?? "").split(" ");
  if (kind === "norm") return ["{n} = γ · ({x} − mean) / standard deviation + β"];
  if (kind === "add") return [residual];
  return {
    embedding: ["{e} = E[token]"],
    positions: [`{x} = √D · {e}${added}`, ...(s.positions === "rotary" ? ["In each layer, before the scores: {Q}, {K} are rotated by their positions"] : [])],
    "self-attention": [`{S} = ${scores}, −∞ where {M} hides`, "{A} = softmax({S})", "{C} = {A} {V}, all heads side by side"],
    "cross-attention": [`{S} = ${scores}, with {Q} of the target and {K}, {V} of the memory`, "{A} = softmax({S})", "{C} = {A} {V}, all heads side by side"],
    attention: [`{S} = ${(scores ?? "").replaceAll("{K}", "memory").replaceAll("{Q}", "state")}`, "{A} = softmax({S})", "output = tanh(W [{A} · memory ; state])"],
    "feed-forward": [`{h} = ${s.activation.toUpperCase().replace("RELU", "ReLU").replace("SILU", "SiLU")}(${source} W₁ + b₁)`, "output = {h} W₂ + b₂"],
    memory: [s.architecture === "rnn" ? "memory = the last layer's states, both directions side by side" : preNorm ? `{m} = LayerNorm(output of layer ${layers})` : `{m} = output of layer ${layers}`],
    decoder: [preNorm ? `{m} = LayerNorm(output of layer ${layers})` : `{m} = output of layer ${layers}`],
    recurrent: [s.cell === "lstm" ? "hₜ, cₜ = LSTM(xₜ, hₜ₋₁, cₜ₋₁)" : "hₜ = GRU(xₜ, hₜ₋₁)"],
    logits: [`{z} = {m} Wᵀ${s.projection_bias ? " + b" : ""}`],
    probabilities: ["{p}ᵢ = exp({z}ᵢ) / Σⱼ exp({z}ⱼ)"],
    layer: ["The same as layer 1, with weights of its own"],
  }[name] ?? [];
}

// The symbol of a stage, by the beginning of its name, with its color.
const SYMBOLS = [["Queries", "Q", 0], ["Keys", "K", 2], ["Values", "V", 3], ["Mask", "M", 5], ["Scores", "S", 4], ["Attention weights", "A", 1],
  ["Heads merged", "C", 5], ["Feed-forward", "h", 3], ["Layer norm", "n", 3], ["Add", "y", 0], ["Embedding + position", "x", 0], ["Scaled embedding", "x", 0],
  ["Embedding", "e", 2], ["Memory", "m", 0], ["Decoder output", "m", 0], ["Logits", "z", 2], ["Probabilities", "p", 0]];

const symbolOf = (name) => SYMBOLS.find(([start]) => name.startsWith(start));

// The symbols of a formula get the colors of `shown`, the stages on the screen; others stay plain.
function formula(text, shown) {
  const colors = new Map(shown.map((stage) => symbolOf(stage.name)).filter(Boolean).map(([, symbol, color]) => [symbol, color]));
  return html("p", { class: "formula" }, text.split(/(\{.\})/).map((part) => {
    const symbol = /^\{(.)\}$/.exec(part)?.[1];
    if (!symbol) return part;
    return html("b", colors.has(symbol) ? { class: "symbol", style: `color:var(--run-${colors.get(symbol)})` } : {}, symbol);
  }));
}

// A stage with its heat map; `stageFigure` draws it.
function boxStage(stage, stageFigure, width) {
  const [, symbol, color] = symbolOf(stage.name) ?? [];
  const part = html("div", { class: "box-stage", style: symbol ? `border-color: var(--run-${color})` : null },
    html("h4", {}, symbol ? html("b", { class: "symbol", style: `color:var(--run-${color})` }, symbol) : null, ` ${stage.name} `,
      html("code", { class: "muted" }, `${[...stage.axes].join("×")} = ${stage.shape.join("×")}`)),
    html("p", { class: "muted" }, stage.text), stageFigure(stage, width));
  return part;
}

// The attention weights of all heads of a layer that has no stages of its own.
function headsOf(part, layer, attention) {
  const kinds = part === "encoder" ? [["encoder", "Self-attention"]] : [["decoder", "Self-attention"], ["cross", "Cross-attention"]];
  return kinds.filter(([kind]) => attention[kind].shape[0] >= layer).map(([kind, title]) => html("div", {}, html("h4", {}, `${title}, attention weights of each head`),
    html("div", { class: "pictures heads" }, Array.from({ length: attention[kind].shape[2] }, (_, head) => html("figure", {},
      thumbnail(attention[kind].matrix(layer - 1, 0, head), 104), html("figcaption", { class: "muted" }, `head ${head + 1}`))))));
}

function codeOf(names) {
  return html("details", {}, html("summary", {}, "The lines that compute it"), names.map((name) => [html("p", { class: "muted" }, html("code", {}, `${data.code[name][0]}, ${name}`)),
    html("pre", { class: "scroll", tabindex: 0, role: "group", "aria-label": name }, html("code", {}, data.code[name][1]))]));
}

// All that a box shows. `stageFigure(stage, width)` draws a stage; `extra` are nodes for boxes without stages.
function boxContent(spec, layer, stageFigure, extra, width) {
  const shown = data.stages.filter((stage) => stage.part === spec.part && stage.box === spec.box);
  const part = { encoder: "Encoder", decoder: "Decoder", output: "Output" }[spec.part];
  const section = shown.length ? `, section ${[...new Set(shown.map((stage) => stage.section.split(",")[0]))].sort().join(", ")} of the paper` : "";
  return [html("p", { class: "muted" }, `${part}${layer ? `, layer ${layer}` : ""}${section}${spec.part === "encoder" ? "" : ". All positions of the finished translation at once"}`),
    formulasOf(spec, data.settings).map((text) => formula(text, shown)),
    shown.map((stage) => boxStage(stage, stageFigure, width)), extra, codeOf(spec.code)];
}
