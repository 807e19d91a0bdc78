// Keeps a page that watches runs up to date, tells values under the pointer, and moves by keys.
// Every page can be read without it.
"use strict";

const LEAST_MS = 3000; // between two fetches of a page
const SHARE = 10; // of the time, at most one part in so many goes into making the page

function follow() {
  const address = document.querySelector("main")?.dataset.live;
  if (!address) return;
  let last = Date.now(), due = 0, rest = LEAST_MS;
  const source = new EventSource(address);
  const soon = () => {
    if (due) return;
    due = setTimeout(again, Math.max(0, last + rest - Date.now()));
  };
  const again = async () => {
    due = 0;
    last = Date.now();
    await refresh();
    rest = Math.max(LEAST_MS, SHARE * (Date.now() - last));
  };
  source.addEventListener("grown", soon);
  source.addEventListener("ended", () => { source.close(); refresh(); });
}

async function refresh() {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const main = document.querySelector("main");
  if (!fresh || main.contains(document.activeElement) && /INPUT|SELECT/.test(document.activeElement.tagName)) return;
  const open = [...main.querySelectorAll("details")].map(each => each.open);
  const ticked = new Set([...main.querySelectorAll("input:checked")].map(each => each.value));
  const place = scrollY;
  main.replaceChildren(...fresh.childNodes);
  main.querySelectorAll("details").forEach((each, at) => { if (at < open.length) each.open = open[at]; });
  main.querySelectorAll("input[type=checkbox]").forEach(each => { if (ticked.has(each.value)) each.checked = true; });
  main.dataset.seen = String(Number(main.dataset.seen || 0) + 1);
  scrollTo(0, place);
}

const told = document.createElement("div");
told.className = "told";
told.hidden = true;
document.body.append(told);

function tell(event) {
  const svg = event.target.closest?.("svg");
  const all = svg ? [...svg.querySelectorAll("[data-series]")].map(each => JSON.parse(each.dataset.series)) : [];
  document.querySelectorAll(".pin").forEach(each => each.remove());
  told.hidden = !all.length;
  if (!all.length) return;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
  const nearest = series => series.x.reduce((best, x, i) => Math.abs(x - at) < Math.abs(series.x[best] - at) ? i : best, 0);
  const lines = all.map(each => { const i = nearest(each); return `${each.name}  ${each.steps[i]}: ${each.shown[i]}`; });
  told.textContent = lines.join("\n");
  const x = all[0].x[nearest(all[0])], pin = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const height = svg.viewBox.baseVal.height;
  for (const [name, value] of Object.entries({ x1: x, x2: x, y1: 8, y2: height - 28, class: "pin" })) pin.setAttribute(name, value);
  svg.append(pin);
  told.style.left = Math.min(event.clientX + 14, innerWidth - told.offsetWidth - 8) + "px";
  told.style.top = Math.min(event.clientY + 14, innerHeight - told.offsetHeight - 8) + "px";
}

function step(by) {
  const links = [...document.querySelectorAll("main tbody tr, main .pair > div")].map(each => each.querySelector("a")).filter(Boolean);
  const at = links.findIndex(each => each === document.activeElement || each.closest("tr, .pair > div").contains(document.activeElement));
  const next = links[Math.min(Math.max(at + by, 0), links.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function turn(by) {
  const page = address => Number(new URL(address).searchParams.get("page") || 1);
  const links = [...document.querySelectorAll("main a[href*='page=']")];
  links.find(each => page(each.href) === page(location.href) + by)?.click();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "n") turn(1);
  else if (event.key === "p") turn(-1);
  else if (event.key === "/") document.querySelector('main input[name="text"]')?.focus();
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  else return;
  event.preventDefault();
}

document.addEventListener("pointermove", tell);
document.addEventListener("keydown", press);
follow();
