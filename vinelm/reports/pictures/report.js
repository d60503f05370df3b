"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- pictures: what a point says, under the pointer and by the arrow keys ---------------------------------------------------
function visible(box) { return all("svg", box).find(svg => getComputedStyle(svg).display !== "none"); }
function hide(figure) { all(".tip", figure).forEach(tip => tip.remove()); all(".hit.on", figure).forEach(hit => hit.classList.remove("on")); }
function show(figure, hit) {
  hide(figure);
  const tip = document.createElement("div"), box = figure.getBoundingClientRect(), at = hit.getBoundingClientRect();
  tip.className = "tip"; tip.textContent = hit.dataset.tip; tip.setAttribute("role", "status");
  figure.append(tip); hit.classList.add("on");
  const x = at.left + at.width / 2 - box.left;
  tip.style.left = Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth)) + "px";
  tip.style.top = Math.max(0, at.top - box.top - tip.offsetHeight - 6) + "px";
}
for (const figure of all("figure")) {
  const box = figure.querySelector(".picture");
  box.addEventListener("pointerover", event => event.target.classList.contains("hit") ? show(figure, event.target) : hide(figure));
  box.addEventListener("pointerleave", () => hide(figure));
  box.addEventListener("blur", () => hide(figure));
  box.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide(figure);
    const hits = all(".hit", visible(box));
    if (!step || !hits.length) return;
    event.preventDefault();
    const now = hits.findIndex(hit => hit.classList.contains("on"));
    show(figure, hits[now < 0 ? (step > 0 ? 0 : hits.length - 1) : (now + step + hits.length) % hits.length]);
  });
}

// -- files to take away ------------------------------------------------------------------------------------------------------
function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob); link.download = name;
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function picture(figure) {  // the wide drawing with the colours of the present theme
  const style = getComputedStyle(document.documentElement), svg = figure.querySelector("svg.wide");
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number), copy = svg.cloneNode(true);
  all(".hit", copy).forEach(hit => hit.remove());
  copy.setAttribute("width", width); copy.setAttribute("height", height); copy.setAttribute("font-family", "sans-serif");
  const text = new XMLSerializer().serializeToString(copy)
    .replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim())
    .replace(/^<svg[^>]*>/, open => open + `<rect width="100%" height="100%" fill="${style.getPropertyValue("--paper").trim()}"/>`);
  return { text, width, height };
}
async function bitmap({ text, width, height }) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * width; canvas.height = 2 * height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}
function csv(table) {
  const quoted = text => '"' + text.replace(/"/g, '""') + '"';
  const safe = text => /^[=+@\t\r]|^-[^\d.]/.test(text) && text !== "-" ? "'" + text : text;  // a spreadsheet must not run a name
  const lines = all("tr", table).map(row => all("th, td", row).map(cell => {
    const small = cell.querySelector("small");
    const main = small ? cell.textContent.replace(small.textContent, "") + ": " + small.textContent : cell.textContent;
    return quoted(safe(main.trim()));
  }).join(","));
  return "\ufeff" + lines.join("\r\n") + "\r\n";
}
document.addEventListener("click", async event => {
  const button = event.target.closest("[data-take]");
  if (!button) return;
  const { take, name } = button.dataset;
  if (take === "json") return save(name + ".json", new Blob([document.getElementById("card-json").textContent], { type: "application/json" }));
  if (take === "csv") save(name + ".csv", new Blob([csv(button.closest(".tabular").querySelector("table"))], { type: "text/csv" }));
  const drawn = take === "csv" ? null : picture(button.closest("figure"));
  if (take === "svg") save(name + ".svg", new Blob([drawn.text], { type: "image/svg+xml" }));
  if (take === "png") save(name + ".png", await bitmap(drawn));
});

// -- texts to copy -----------------------------------------------------------------------------------------------------------
async function copied(text) {  // true once it is on the clipboard
  try { await navigator.clipboard.writeText(text); return true; } catch { /* no permission: the old way */ }
  const box = document.createElement("textarea");
  box.value = text; document.body.append(box); box.select();
  const done = document.execCommand("copy");
  box.remove();
  return done;
}
for (const button of all("[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy), says = button.closest(".take").querySelector("[role=status]");
    const done = await copied(source.textContent);
    says.textContent = done ? "Copied." : "Copy it from here.";
    if (!done) source.closest("details").open = true;
    button.focus();
  });
}

// -- tables that sort ----------------------------------------------------------------------------------------------------------
function key(cell) {
  const text = cell.textContent.replace(/[,\u00a0$%≤≥<>=]/g, "").trim(), number = parseFloat(text.replace("−", "-"));
  return Number.isNaN(number) || /^[a-z]/i.test(text) ? text.toLowerCase() : number;
}
function compare(one, two) {
  if (typeof one !== typeof two) return typeof one === "number" ? -1 : 1;
  return one < two ? -1 : one > two ? 1 : 0;
}
for (const head of all("th")) {
  const button = head.querySelector("button");
  button.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
    all("th", head.parentElement).forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map(row => [key(row.cells[column]), row]).sort((one, two) => (down ? -1 : 1) * compare(one[0], two[0]));
    body.append(...rows.map(row => row[1]));
  });
}

addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; all("details").forEach(one => { one.open = true; }); });
addEventListener("afterprint", () => { delete document.documentElement.dataset.print; });
