"use strict";
// The translation page. It calls /v1/models, /v1/translate, /v1/explain and /translate_file, and never inserts text as HTML.

const WAIT_MS = 400; // time from the last input to the request
const SENTENCES = new Intl.Segmenter(undefined, { granularity: "sentence" });
const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });
const EOS = 3; // token ids up to and including EOS are special
let limits = null;
let models = [];
let formats = []; // file suffixes of the documents that the server translates
let current = null; // AbortController of the running translation
let prefix = []; // token ids that the translation must begin with
let fileName = "translation";

const isOneSentence = () => !byId("text").value.trim().includes("\n");
const model = () => models[Number(byId("pair").value)];

function report(message, isError = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("error", isError);
}

function settings() {
  const { source, target } = model();
  const found = { source, target, beam: Number(byId("beam").value), alpha: Number(byId("alpha").value) };
  if (byId("sample").checked) Object.assign(found, { sample: true, temperature: Number(byId("temperature").value), seed: Number(byId("seed").value) });
  return found;
}

async function post(path, body, signal) {
  const key = byId("key").value; // sent in the body, because fetch refuses headers with characters beyond Latin-1
  const isForm = body instanceof FormData;
  if (isForm) body.set("api_key", key);
  const content = isForm ? { body } : { body: JSON.stringify({ ...body, api_key: key }), headers: { "Content-Type": "application/json" } };
  for (;;) {
    const response = await fetch(path, { method: "POST", signal, ...content });
    if (response.ok) return response;
    if (response.status !== 429) throw new Error((await response.json()).error);
    report("The server is busy; waiting …");
    await new Promise((resume) => setTimeout(resume, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    signal?.throwIfAborted();
  }
}

// Yield the server-sent events of a response, each as [kind, data].
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (buffer + value).split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      const [kind, data] = block.split("\n");
      yield [kind.slice("event: ".length), JSON.parse(data.slice("data: ".length))];
    }
  }
}

// --- documents ----------------------------------------------------------------------------------------------

// Split a line into parts of at most `size` characters, if possible between sentences, otherwise between words.
function cut(line, size) {
  const parts = [];
  while (line.length > size) {
    const starts = [SENTENCES, WORDS].map((segmenter) => segmenter.segment(line).containing(size).index);
    const at = starts.find((start) => start > 0) ?? size;
    parts.push(line.slice(0, at));
    line = line.slice(at);
  }
  return [...parts, line];
}

// Group the parts of all lines into requests within the server's limits. A part is { line, text }.
function requestsOf(lines) {
  const requests = [[]];
  let size = 0;
  lines.forEach((text, line) => cut(text, limits.max_characters).forEach((part) => {
    if (requests.at(-1).length >= limits.max_lines || size + part.length > limits.max_characters) {
      requests.push([]);
      size = 0;
    }
    requests.at(-1).push({ line, text: part });
    size += part.length;
  }));
  return requests;
}

// A space separates two parts of a line, unless spaces between letters are rare in the line, as in Chinese.
function joinParts(parts) {
  const text = parts.filter(Boolean).join("\0");
  const nSpaces = text.match(/\p{L}\s+\p{L}/gu)?.length ?? 0;
  return text.replaceAll("\0", 100 * nSpaces > text.length ? " " : "");
}

async function translate() {
  current?.abort();
  const controller = (current = new AbortController());
  const { signal } = controller;
  const text = byId("text").value.replaceAll("\r\n", "\n");
  byId("inside").hidden = true;
  report("");
  if (!text.trim()) {
    byId("result").textContent = "";
    byId("progress").hidden = true;
    return;
  }
  const lines = text.split("\n");
  const requests = requestsOf(lines);
  const translated = requests.map((parts) => parts.map(() => ""));
  const show = () => {
    const texts = lines.map(() => []);
    requests.forEach((parts, r) => parts.forEach(({ line }, i) => texts[line].push(translated[r][i])));
    byId("result").textContent = texts.map(joinParts).join("\n");
  };
  const progress = byId("progress");
  progress.hidden = requests.length < 2;
  progress.max = lines.length;
  progress.value = 0;
  byId("result").setAttribute("aria-busy", "true");
  try {
    for (const [r, parts] of requests.entries()) {
      const start = prefix.length ? { prefix } : {};
      const body = { q: parts.map((part) => part.text), stream: true, ...start, ...settings() };
      for await (const [kind, data] of eventsOf(await post("v1/translate", body, signal))) {
        if (kind === "error") throw new Error(data.error);
        if (kind === "partial") translated[r][data.line] = data.text;
        else translated[r] = data.translations.map((line) => line.hypotheses[0].text);
        show();
      }
      progress.value = parts.at(-1).line + 1;
      if (requests.length > 1) report(`${progress.value} of ${lines.length} lines`);
    }
    report(requests.length > 1 ? `${lines.length} lines translated` : "");
    if (isOneSentence() && model().explains) await lookInside(text.trim(), signal);
  } catch (error) {
    if (error.name !== "AbortError") report(error.message, true);
  } finally {
    if (current === controller) byId("result").removeAttribute("aria-busy");
  }
}

async function translateFile(file) {
  current?.abort();
  const controller = (current = new AbortController());
  const form = new FormData();
  for (const [name, value] of Object.entries({ file, source: model().source, target: model().target })) form.set(name, value);
  if (/\.[ct]sv$/i.test(file.name)) form.set("column", prompt("Which column? Its name") ?? "");
  const progress = byId("progress");
  progress.removeAttribute("value");
  progress.hidden = false;
  byId("inside").hidden = true;
  put("result");
  report(`Translating ${file.name} …`);
  try {
    if (file.size > limits.max_file_bytes) throw new Error(`a file may have ${limits.max_file_bytes.toLocaleString("en")} bytes`);
    const { translatedFileUrl } = await (await post("translate_file", form, controller.signal)).json();
    const href = `download_file/${translatedFileUrl.split("/").at(-1)}`; // relative, because a proxy may put this page under a prefix
    put("result", html("a", { href, download: "" }, `Save the translation of ${file.name}`));
    report(`${file.name} is translated`);
  } catch (error) {
    if (error.name !== "AbortError") report(error.message, true);
  } finally {
    if (current === controller) progress.hidden = true;
  }
}

// --- one sentence -------------------------------------------------------------------------------------------

async function lookInside(text, signal) {
  let found;
  try {
    found = await (await post("v1/explain", { q: text, prefix, ...settings() }, signal)).json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return; // a sentence that is longer than the model's limit is translated in parts and cannot be explained
  }
  const [best] = found.hypotheses;
  byId("words").dir = directionOfResult();
  put("words", ...wordsOf(best.tokens).map((word) => wordButton(text, best.tokens, word)));
  put("alternatives");
  byId("attention").hidden = !found.cross;
  const pieces = best.tokens.map((token) => token.piece);
  if (found.cross) put("attention-figure", attentionLines(found.cross, pieces, found.source_pieces, "Cross-attention, mean of all heads"),
    asTable("As a table", () => matrixTable(found.cross, pieces, found.source_pieces)));
  put("hypotheses", table(["", "translation", "score", "log-probability"], found.hypotheses.map((one, i) =>
    [i + 1, html("span", { dir: "auto" }, one.text), one.score.toFixed(3), one.log_prob.toFixed(3)])));
  put("tree-figure");
  byId("tree").open = false;
  byId("tree").ontoggle = () => {
    if (byId("tree").open && !byId("tree-figure").hasChildNodes()) put("tree-figure", ...searchTree(found.tree));
  };
  byId("inside").hidden = false;
}

// dir="auto" would ignore the words, because they are in <bdi> elements.
function directionOfResult() {
  return getComputedStyle(byId("result")).direction;
}

// Return whether a word begins between two pieces. A byte piece belongs to the word before it.
function startsWord(last, piece) {
  const isAtBoundary = WORDS.segment(last + piece).containing(last.length).index === last.length;
  return piece.startsWith(SPACE) || (isAtBoundary && !piece.startsWith("<0x"));
}

// Return the words of a hypothesis, each as the range [start, end) of the indices of its pieces.
function wordsOf(tokens) {
  const words = [];
  tokens.forEach(({ piece, token }, i) => {
    if (token <= EOS) return;
    const last = tokens[i - 1]?.piece ?? "";
    if (!words.length || startsWord(last, piece)) words.push([i, i]);
    words.at(-1)[1] = i + 1;
  });
  return words.filter(([start, end]) => piecesToText(tokens.slice(start, end).map((token) => token.piece)));
}

function wordButton(text, tokens, [start, end]) {
  const word = piecesToText(tokens.slice(start, end).map((token) => token.piece));
  const probability = Math.exp(tokens.slice(start, end).reduce((sum, token) => sum + token.log_prob, 0));
  const kind = probability < 0.3 ? "doubtful" : probability < 0.7 ? "unsure" : "";
  return html("button", { class: kind, "aria-expanded": "false", title: percent(probability), onclick: (event) => {
    for (const button of byId("words").children) button.setAttribute("aria-expanded", String(button === event.currentTarget));
    showAlternatives(text, tokens, start, word);
  } }, bdi(word), html("span", { class: "bar" }));
}

// Translate the sentence with each alternative at this position, and show the translations. The server batches them.
async function showAlternatives(text, tokens, position, word) {
  const before = tokens.slice(0, position).map((token) => token.token);
  const choices = tokens[position].alternatives.filter((choice) => choice.token > EOS && choice.token !== tokens[position].token);
  put("alternatives", html("p", {}, "Instead of ", html("b", {}, bdi(word)), " …"));
  try {
    const sentences = await Promise.all(choices.map(async (choice) => {
      // Request a stream, so that the same engine translates as above. Another engine might find another translation.
      const body = { q: text, prefix: [...before, choice.token], stream: true, ...settings() };
      for await (const [kind, data] of eventsOf(await post("v1/translate", body, current?.signal))) {
        if (kind === "error") throw new Error(data.error);
        if (kind === "done") return data.translations[0].hypotheses[0];
      }
    }));
    put("alternatives", html("p", {}, "Instead of ", html("b", {}, bdi(word)), ":"), html("ul", { dir: directionOfResult() }, choices.map((choice, i) =>
      html("li", {}, html("button", { onclick: () => goOnFrom([...before, choice.token], sentences[i].pieces) },
        html("span", { dir: "auto" }, sentences[i].text), " ", html("span", { class: "muted" }, percent(Math.exp(choice.log_prob))))))));
    byId("alternatives").querySelector("button")?.focus();
  } catch (error) {
    if (error.name !== "AbortError") report(error.message, true);
  }
}

async function goOnFrom(tokens, pieces) {
  prefix = tokens;
  byId("beginning").textContent = piecesToText(pieces.slice(0, tokens.length));
  byId("begins").hidden = false;
  await translate();
  byId("result").focus();
}

function searchFreely() {
  prefix = [];
  byId("begins").hidden = true;
}

// --- controls -----------------------------------------------------------------------------------------------

let timer = 0;

function translateSoon() {
  searchFreely();
  clearTimeout(timer);
  timer = setTimeout(translate, WAIT_MS);
}

function translateNow() {
  clearTimeout(timer);
  translate();
}

async function readFile(file) {
  if (!file) return;
  clearTimeout(timer);
  searchFreely();
  const suffix = file.name.slice(file.name.lastIndexOf(".")).toLowerCase();
  if (suffix !== ".txt" && formats.includes(suffix)) return translateFile(file);
  fileName = file.name.replace(/\.txt$/, "");
  byId("text").value = await file.text();
  translateNow();
}

function save() {
  const link = byId("result").querySelector("a"); // link to a translated document
  if (link) return link.click();
  const url = URL.createObjectURL(new Blob([`${byId("result").textContent}\n`], { type: "text/plain" }));
  html("a", { href: url, download: `${fileName}.${model().target}.txt` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function addDefaults() {
  byId("beam").value = model().beam;
  byId("alpha").value = model().alpha;
  byId("text").lang = model().source;
  byId("result").lang = model().target;
}

byId("text").addEventListener("input", translateSoon);
byId("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  translateNow();
});
document.addEventListener("dragover", (event) => {
  if (event.dataTransfer.types.includes("Files")) event.preventDefault();
});
document.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  readFile(event.dataTransfer.files[0]);
});
byId("go").addEventListener("click", translateNow);
byId("open").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", () => {
  readFile(byId("file").files[0]);
  byId("file").value = ""; // so that choosing the same file again triggers a change event
});
byId("release").addEventListener("click", () => { searchFreely(); translateNow(); });
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("result").textContent);
  report("Copied");
});
byId("download").addEventListener("click", save);
byId("pair").addEventListener("change", () => { addDefaults(); translateSoon(); });
for (const id of ["beam", "alpha", "sample", "temperature", "seed"]) byId(id).addEventListener("change", translateSoon);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  translateNow();
});
byId("explain").addEventListener("submit", () => {
  const fields = { q: byId("text").value.trim(), api_key: byId("key").value, ...settings() };
  byId("explain").querySelectorAll("input").forEach((input) => input.remove());
  byId("explain").append(...Object.entries(fields).map(([name, value]) => html("input", { type: "hidden", name, value: String(value) })));
});

(async () => {
  limits = await (await fetch("v1/models")).json();
  models = limits.models;
  formats = (await (await fetch("frontend/settings")).json()).supportedFilesFormat;
  byId("file").accept = ["text/plain", ...formats].join();
  byId("key-form").hidden = !limits.needs_key;
  put("pair", ...models.map((one, i) => html("option", { value: i }, `${one.source_name} → ${one.target_name}`)));
  addDefaults();
  byId("text").focus();
})();
