"use strict";
// The page of an export. A worker of the engine translates. After loading, the page makes no request.

const ENGINE = "node_modules/@browsermt/bergamot-translator/worker/translator-worker.js";
const MODEL = { from: "source", to: "target" }; // the name of the only model, in the engine's form
const WAIT_MS = 300; // time from the last input to the translation
const N_LINES = 8; // lines that are translated together
const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });

const byId = (id) => document.getElementById(id);
const nWords = (text) => [...WORDS.segment(text)].filter((part) => part.isWordLike).length;
let newest = 0; // number of the last input; an older translation stops
let timer = null;

function report(message, isError = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("error", isError);
}

// --- the engine's worker --------------------------------------------------------------------------------------

const worker = new Worker(ENGINE);
const waiting = new Map(); // id of a call -> [resolve, reject]
let nCalls = 0; // the ids begin with 1

// Call a method of the worker. It answers with a message that has the same id.
function call(name, ...args) {
  return new Promise((resolve, reject) => {
    nCalls += 1;
    waiting.set(nCalls, [resolve, reject]);
    worker.postMessage({ id: nCalls, name, args });
  });
}

worker.addEventListener("message", ({ data }) => {
  const [resolve, reject] = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error) reject(new Error(data.error.message));
  else resolve(data.result);
});
worker.addEventListener("error", () => report("The engine cannot be loaded. Run npm ci in this directory.", true));

async function file(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return response.arrayBuffer();
}

// Return the engine's settings for nmt's. With skip-cost, it compares logits, which is right for greedy search only.
function engineSettings({ beam, alpha, whole_lines }) {
  return { "beam-size": beam, "normalize": alpha, "skip-cost": beam === 1, "ssplit-mode": whole_lines ? "sentence" : "paragraph" };
}

async function load() {
  const start = performance.now();
  const config = JSON.parse(new TextDecoder().decode(await file("config.json")));
  const names = [...new Set(config.vocabularies.map((name) => `${name}.spm`))]; // the engine wants a file that serves both sides only once
  const [model, ...vocabs] = await Promise.all(["model.bin", ...names].map(file));
  await call("initialize", {});
  await call("loadTranslationModel", MODEL, { model, vocabs, shortlist: new ArrayBuffer(0), config: engineSettings(config.decode) });
  [byId("text").lang, byId("result").lang] = config.languages;
  report(`Ready after ${((performance.now() - start) / 1000).toFixed(1)} s; the model has ${(model.byteLength / 1e6).toFixed(1)} MB`);
}

// --- translation ----------------------------------------------------------------------------------------------

async function translate() {
  const number = ++newest;
  const lines = byId("text").value.split("\n");
  const start = performance.now();
  const results = [];
  byId("result").setAttribute("aria-busy", "true");
  while (results.length < lines.length) {
    const texts = lines.slice(results.length, results.length + N_LINES).map((text) => ({ text, html: false }));
    const translated = await call("translate", { models: [MODEL], texts });
    if (number !== newest) return;
    results.push(...translated.map((one, i) => (texts[i].text.trim() ? one.target.text : texts[i].text)));
    byId("result").textContent = results.join("\n");
  }
  byId("result").setAttribute("aria-busy", "false");
  const seconds = (performance.now() - start) / 1000;
  const n = nWords(lines.join("\n"));
  report(n ? `${n} words in ${seconds.toFixed(2)} s: ${Math.round(n / seconds)} words a second` : "");
}

const fail = (error) => report(error.message, true);
const ready = load();
ready.catch(fail);
byId("text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => ready.then(translate).catch(fail), WAIT_MS);
});
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("result").textContent);
  report("Copied");
});
byId("text").focus();
