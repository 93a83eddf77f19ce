"use strict";
// The content of a box of the map: formulas, tensors, and the code that computes them.

// Returns the formulas of a box. Symbols of tensors are in braces: {Q}.
function formulasOf(spec, s) {
  const preNorm = s.norm === "pre", source = { pre: "{n}", post: "{x}" }[s.norm];
  const layers = { encoder: s.n_encoder_layers, decoder: s.n_decoder_layers }[spec.part];
  const scores = { scaled_dot: "{Q} {K}ᵀ / √d", dot: "{Q} {K}ᵀ", additive: "vᵀ tanh({Q} + {K})", general: "{Q} W {K}ᵀ" }[s.attention];
  const residual = preNorm ? "{y} = {x} + sub-layer({n})" : "{y} = LayerNorm({x} + sub-layer({x}))";
  const added = { sinusoidal: " + sines and cosines of its position", marian: " + sines and cosines of its position", learned: " + learned vector of its position", rotary: "", none: "" }[s.positions];
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
  }[name] ?? [];
}

// The beginning of a stage's name, and the symbol of its tensor. On the whole page, queries, keys and values are shown
// in the same three colors.
const SYMBOLS = [["Queries", "Q"], ["Keys", "K"], ["Values", "V"], ["Mask", "M"], ["Scores", "S"], ["Attention weights", "A"],
  ["Heads merged", "C"], ["Feed-forward", "h"], ["Layer norm", "n"], ["Add", "y"], ["Embedding + position", "x"], ["Scaled embedding", "x"],
  ["Embedding", "e"], ["Memory", "m"], ["Decoder output", "m"], ["Logits", "z"], ["Probabilities", "p"]];
const COLORS = { Q: "var(--q)", K: "var(--k)", V: "var(--v)" };

const symbolOf = (name) => SYMBOLS.find(([start]) => name.startsWith(start))?.[1];
const boldSymbol = (symbol) => html("b", { class: "symbol", style: symbol in COLORS ? `color: ${COLORS[symbol]}` : null }, symbol);

// Returns the CSS variables for the heat map of a stage, or null if the stage has no color of its own.
function colorsOf(name) {
  const color = COLORS[symbolOf(name)];
  return color ? `--mark: ${color}; --positive: ${color}; --negative: var(--muted)` : null;
}

function formula(text) {
  return html("p", { class: "formula" }, text.split(/\{(.)\}/).map((part, i) => (i % 2 ? boldSymbol(part) : part)));
}

// Returns the name, shape and text of a stage with its heat map, which the function `stageFigure` draws.
function boxStage(stage, stageFigure, width) {
  const symbol = symbolOf(stage.name);
  return html("div", { class: "box-stage", style: colorsOf(stage.name) },
    html("h4", {}, symbol ? boldSymbol(symbol) : null, ` ${stage.name} `,
      html("code", { class: "muted" }, `${[...stage.axes].join("×")} = ${stage.shape.join("×")}`)),
    html("p", { class: "muted" }, stage.text), stageFigure(stage, width));
}

// Returns pictures of the attention weights of all heads of a layer. They are shown for layers without stages.
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

// Returns the whole content of a box. `stageFigure(stage, width)` draws a stage. `extra` has elements to show in a box
// that has no stages.
function boxContent(spec, layer, stageFigure, extra, width) {
  const shown = data.stages.filter((stage) => stage.part === spec.part && stage.box === spec.box);
  const part = { encoder: "Encoder", decoder: "Decoder", output: "Output" }[spec.part];
  const sections = new Set(shown.map((stage) => stage.section.split(",")[0]).filter(Boolean)); // stages of recurrent models have no section
  const section = sections.size ? `, section ${[...sections].sort().join(", ")} of the paper` : "";
  return [html("p", { class: "muted" }, `${part}${layer ? `, layer ${layer}` : ""}${section}${spec.part === "encoder" ? "" : ". All positions of the finished translation at once"}`),
    formulasOf(spec, data.settings).map(formula),
    shown.map((stage) => boxStage(stage, stageFigure, width)), extra, codeOf(spec.code)];
}
