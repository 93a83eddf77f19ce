"use strict";
// The documentation page of the API, built from the server's OpenAPI description.

const EXAMPLES = {
  "/translate_file": "-F file=@letter.docx -F source=auto -F target=en",
  "/translate": { q: "Ein Hund rennt.", source: "auto", target: "en", alternatives: 2 },
  "/v1/translate": { q: ["Ein Hund rennt.", "Zwei Kinder spielen."], beam: 5, n_best: 3 },
  "/v1/explain": { q: "Ein Hund rennt." },
};

function typeOf(schema, all) {
  if (schema.$ref) return all[schema.$ref.split("/").at(-1)].title;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.filter((one) => one.type !== "null").map((one) => typeOf(one, all)).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items, all)}`;
  return schema.type ?? "any";
}

// Return a title and a table of a schema's fields. `withDefaults` adds a column with their default values.
function fieldsOf(title, schema, all, withDefaults = false) {
  if (schema?.type === "array") return fieldsOf(`${title}: a list of`, schema.items, all, withDefaults);
  const found = schema?.$ref ? all[schema.$ref.split("/").at(-1)] : schema;
  if (!found?.properties) return [];
  const defaultOf = (name, field) => found.required?.includes(name) ? "needed"
    : field.default === undefined || field.default === null ? "" : JSON.stringify(field.default);
  const rows = Object.entries(found.properties).map(([name, field]) => [html("code", {}, name), typeOf(field, all),
    ...(withDefaults ? [defaultOf(name, field)] : []), field.description ?? ""]);
  return [html("h3", {}, title), html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title },
    table(["field", "type", ...(withDefaults ? ["default"] : []), ""], rows))];
}

(async () => {
  const api = await (await fetch("openapi.json")).json();
  const all = api.components.schemas;
  const content = (part) => Object.values(part?.content ?? {})[0]?.schema;
  const sections = [];
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, endpoint] of Object.entries(methods)) {
    const example = EXAMPLES[path];
    const data = !example ? "" : typeof example === "string" ? ` ${example}` : ` -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example)}'`;
    sections.push(html("section", { class: "endpoint" }, html("h2", {}, html("code", {}, `${method.toUpperCase()} ${path}`)),
      html("p", {}, endpoint.description ?? ""), html("pre", { tabindex: 0 }, `curl ${new URL(`.${path}`, location.href)}${data}`),
      fieldsOf("Request", content(endpoint.requestBody), all, true), fieldsOf("Answer", content(endpoint.responses["200"]), all)));
  }
  const named = new Set(Object.keys(all).filter((name) => /^(LineAnswer|HypothesisAnswer|ModelAnswer|DetectedLanguage)$/.test(name)));
  sections.push(html("section", {}, html("h2", {}, "Parts of answers"), [...named].map((name) => fieldsOf(name, all[name], all))));
  put("endpoints", ...sections);
})();
