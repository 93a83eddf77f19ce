// Translate the lines of stdin with an export to the browser and its engine, in node 20.
//
//     node translate_lines.mjs EXPORT WORKER < lines
//
// WORKER is translator-worker.js, copied with the files beside it out of its package, which node takes for ES modules.
import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";

const [directory, file] = process.argv.slice(2);
const worker = new Worker(file);
const MODEL = { from: "source", to: "target" };
const contentOf = (name) => new Uint8Array(readFileSync(`${directory}/${name}`)).buffer;

// Call a method of the worker, and wait for its answer.
function call(name, ...args) {
  return new Promise((resolve, reject) => {
    worker.once("message", ({ result, error }) => (error ? reject(new Error(error.message)) : resolve(result)));
    worker.postMessage({ id: 1, name, args });
  });
}

const { vocabularies, decode } = JSON.parse(readFileSync(`${directory}/config.json`));
const vocabs = [...new Set(vocabularies)].map((name) => contentOf(`${name}.spm`));
const config = {
  "beam-size": decode.beam,
  "normalize": decode.alpha,
  "skip-cost": decode.beam === 1,
  "ssplit-mode": decode.whole_lines ? "sentence" : "paragraph",
};
await call("initialize", {});
await call("loadTranslationModel", MODEL, { model: contentOf("model.bin"), vocabs, shortlist: new ArrayBuffer(0), config });
const texts = readFileSync(0, "utf8").replace(/\n$/, "").split("\n").map((text) => ({ text, html: false }));
for (const { target } of await call("translate", { models: [MODEL], texts })) console.log(target.text);
await worker.terminate();
