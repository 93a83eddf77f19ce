// The page of `nmt check`: its findings. `data` is the result of nmt.corpus.render.as_plain.

const data = JSON.parse(byId("data").textContent);
const train = data.corpora[0];
const count = (n, name) => `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;
const share = (value) => (value > 0 && value < 0.0005 ? "under 0.1 %" : percent(value));
const anchor = (finding) => `${finding.corpus}-${finding.kind}-${data.findings.indexOf(finding)}`;
const text = (value) => html("span", { dir: "auto" }, value);

function ranges(lines) {
  const found = [];
  for (const line of lines) {
    const last = found.at(-1);
    if (last && line === last[1] + 1) last[1] = line;
    else found.push([line, line]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

function details(finding) {
  const rows = finding.examples.map((one) => [one.line, text(one.source), text(one.target)]);
  const more = finding.count > finding.lines.length ? `, and ${(finding.count - finding.lines.length).toLocaleString("en")} more` : "";
  return html("div", { class: "finding", id: anchor(finding) },
    html("h3", {}, `${finding.corpus}: ${finding.title}`),
    finding.count ? html("p", {}, `${count(finding.count, "line")}, ${share(finding.share)}.`) : null,
    finding.detail ? html("p", {}, finding.detail) : null,
    html("p", {}, html("b", {}, "What to do: "), finding.advice, "."),
    rows.length ? html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Examples: ${finding.title}` }, table(["line", "source", "target"], rows)) : null,
    finding.count ? html("details", {}, html("summary", {}, "Line numbers"), html("p", { class: "lines" }, ranges(finding.lines), more)) : null);
}

byId("title").textContent = [...train.source, ...train.target].join(", ");
const counts = ["error", "warning", "note"].map((severity) => [severity, data.findings.filter((one) => one.severity === severity)]);
byId("state").textContent = data.findings.length ? `${counts.filter(([, found]) => found.length).map(([name, found]) => count(found.length, name)).join(", ")}.` : "No fault found.";
put("finding-table", table(["severity", "corpus", "fault", "lines", "share"], data.findings.map((finding) => [
  html("span", { class: finding.severity }, finding.severity), finding.corpus, html("a", { href: `#${anchor(finding)}` }, finding.title),
  finding.count ? finding.count.toLocaleString("en") : "–", finding.count ? share(finding.share) : "–"])));
for (const [severity, found] of counts) {
  if (found.length) put(`${severity}-list`, ...found.map(details));
  else drop(`${severity}s`);
}
put("file-table", table(["corpus", "source", "lines", "target", "lines"], data.corpora.map((one) => [
  one.name, one.source.join(", "), one.n_source.toLocaleString("en"), one.target.join(", "), one.n_target.toLocaleString("en")])));
listSections();
