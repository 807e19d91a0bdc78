// Keeps a page that watches runs up to date, tells the values at a step, and moves by keys.
// Every page can be read without it.
"use strict";

const LEAST_MS = 3000; // between two fetches of a page
const SHARE = 10; // of the time, at most one part in so many goes into making the page
const main = document.querySelector("main");

function follow() {
  const lost = document.querySelector(".lost");
  let last = Date.now(), due = 0, rest = LEAST_MS, source = null;
  const soon = () => { due ||= setTimeout(again, Math.max(0, last + rest - Date.now())); };
  const again = async () => {
    clearTimeout(due);
    due = 0;
    last = Date.now();
    const free = await refresh();
    rest = Math.max(LEAST_MS, SHARE * (Date.now() - last));
    if (!main.dataset.live) source?.close();
    else if (!free) soon();
  };
  // A page that is not seen listens to nothing: a browser opens few connections to one server.
  const listen = () => {
    clearTimeout(due);
    source?.close();
    due = 0;
    if (document.hidden || !main.dataset.live) return;
    source = new EventSource(main.dataset.live);
    source.addEventListener("grown", soon);
    source.addEventListener("turned", again);
    source.addEventListener("open", () => { lost.hidden = true; });
    source.addEventListener("error", () => { lost.hidden = false; });
  };
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", event => { if (event.persisted) listen(); });
  listen();
}

// Shows what the page would be now; false where the reader chooses or types something.
async function refresh() {
  const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
  if (answer?.status === 404) location.reload();  // its run is gone: the address says so now
  const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const active = document.activeElement, chosen = getSelection();
  if (main.contains(active) && /INPUT|SELECT/.test(active.tagName) && active.type !== "checkbox") return false;
  if (!chosen.isCollapsed && main.contains(chosen.anchorNode)) return false;
  if (!fresh) return true;
  const ticked = new Set([...main.querySelectorAll("input:checked")].map(each => each.value));
  const link = main.contains(active) && active.getAttribute("href");
  fresh.dataset.seen = String(Number(main.dataset.seen || 0) + 1);
  renew(main, fresh);
  main.querySelectorAll("input[type=checkbox]").forEach(each => { each.checked = ticked.has(each.value); });
  if (link && document.activeElement.getAttribute("href") !== link) main.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
  reach();
  if (asked) tell(...asked);
  return true;
}

// Makes `old` what `fresh` is, touching only what differs: what the reader opened, chose and focused stays.
function renew(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) return old.replaceWith(fresh);
  if (!old.attributes) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name) && !/^(open|tabindex)$/.test(name)) old.removeAttribute(name);
  const ours = [...old.childNodes], theirs = [...fresh.childNodes];
  theirs.forEach((each, at) => ours[at] ? renew(ours[at], each) : old.append(each));
  ours.slice(theirs.length).forEach(each => each.remove());
}

// Charts: what the lines say at the step under the pointer, or at the one that arrow keys chose.

const told = document.createElement("div");
told.className = "told";
told.hidden = true;
told.setAttribute("role", "status");
document.body.append(told);
let asked = null; // the chart that was pointed at, and the place there

function lines(svg) {
  let before = {};
  return JSON.parse(svg.dataset.told).map(each => {
    before = { ...before, ...each, shown: each.shown.split("\n") };
    return before;
  });
}

const nearest = (line, x) => line.x.reduce((best, place, i) => Math.abs(place - x) < Math.abs(line.x[best] - x) ? i : best, 0);

// What the lines of a chart say at a place: all those that have a step there.
function said(svg, x) {
  const every = lines(svg), at = every.map(line => nearest(line, x));
  const place = every.map((line, n) => line.x[at[n]]).reduce((best, each) => Math.abs(each - x) < Math.abs(best - x) ? each : best);
  const own = every.flatMap((line, n) => Math.abs(line.x[at[n]] - place) < 1 && line.shown[at[n]] ? [{ ...line, step: line.steps[at[n]], text: line.shown[at[n]] }] : []);
  return { place, own };
}

function forget() {
  asked = null;
  told.hidden = true;
  main.querySelectorAll(".pin").forEach(each => each.remove());
  main.querySelectorAll("figcaption i[data-last]").forEach(each => { each.textContent = each.dataset.last; });
}

// All panels of a group share their steps: each says its value in its caption.
function tell(svg, x) {
  forget();
  if (!svg.isConnected) return;
  asked = [svg, x];
  const group = svg.closest(".panels")?.querySelectorAll("svg[data-told]") ?? [svg];
  for (const each of group) mark(each, x);
  const { place, own } = said(svg, x), name = svg.closest("figure")?.querySelector("figcaption span")?.textContent;
  if (!own.length) return;
  told.replaceChildren(row("b", `${main.dataset.step} ${own[0].step}`), ...own.map(each => row("div", own.length > 1 || !name ? each.name : name, each)));
  told.hidden = false;
  const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
  const left = box.left + place * scale;
  told.style.left = Math.max(8, left + 14 + told.offsetWidth > innerWidth ? left - told.offsetWidth - 14 : left + 14) + "px";
  told.style.top = Math.min(Math.max(box.top, 8), innerHeight - told.offsetHeight - 8) + "px";
}

function row(tag, name, line) {
  const made = document.createElement(tag);
  if (line?.kind) made.append(Object.assign(document.createElement("i"), { className: `swatch ${line.kind}` }));
  made.append(name);
  if (line) made.append(Object.assign(document.createElement("b"), { textContent: line.text }));
  return made;
}

function mark(svg, x) {
  const { place, own } = said(svg, x), height = svg.viewBox.baseVal.height;
  const pin = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [name, value] of Object.entries({ x1: place, x2: place, y1: 8, y2: height - 24, class: "pin" })) pin.setAttribute(name, value);
  svg.append(pin);
  const last = svg.closest("figure")?.querySelector("figcaption i");
  if (!last || own.length !== 1) return;
  last.dataset.last ??= last.textContent;
  last.textContent = own[0].text.split(/ ?[(（]/)[0];
}

function point(event) {
  const svg = event.target.closest?.("svg[data-told]");
  if (!svg) return asked?.[0] === document.activeElement ? undefined : forget();
  tell(svg, new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x);
}

// One chart of a group is reached by Tab; arrow keys go from step to step, up and down from chart to chart.
function reach() {
  for (const svg of main.querySelectorAll("svg[data-told]:not([tabindex])")) {
    svg.setAttribute("tabindex", svg.closest(".panels")?.querySelector("svg[data-told]") === svg || !svg.closest(".panels") ? 0 : -1);
    svg.querySelectorAll(".hit title").forEach(each => each.remove()); // told in full instead
  }
}

function walk(svg, event) {
  const [line] = lines(svg), group = [...(svg.closest(".panels") ?? main).querySelectorAll("svg[data-told]")];
  const here = asked?.[0] === svg ? nearest(line, asked[1]) : line.x.length;
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
  const next = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (step) tell(svg, line.x[Math.min(Math.max(here + step, 0), line.x.length - 1)]);
  else if (next) group[group.indexOf(svg) + next]?.focus();
  else if (event.key === "Escape") forget();
  else return false;
  return true;
}

// Keys of a page.

function step(by) {
  const links = [...main.querySelectorAll("tbody tr, .pair > div")].map(each => each.querySelector("a")).filter(Boolean);
  const at = links.findIndex(each => each === document.activeElement || each.closest("tr, .pair > div").contains(document.activeElement));
  const next = links[Math.min(Math.max(at + by, 0), links.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function turn(by) {
  const page = address => Number(new URL(address).searchParams.get("page") || 1);
  const links = [...main.querySelectorAll("a[href*='page=']")];
  links.find(each => page(each.href) === page(location.href) + by)?.click();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName) && event.target.type !== "checkbox") return;
  const svg = event.target.closest?.("svg[data-told]");
  if (svg && walk(svg, event)) return event.preventDefault();
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "n") turn(1);
  else if (event.key === "p") turn(-1);
  else if (event.key === "/") main.querySelector('input[name="text"]')?.focus();
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  else return;
  event.preventDefault();
}

document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("keydown", press);
document.addEventListener("focusin", event => {
  const svg = event.target.closest?.("svg[data-told]");
  if (svg && asked?.[0] !== svg) tell(svg, asked?.[1] ?? 1e9);
  else if (!svg) forget();
});
document.querySelector(".keys").hidden = false;
reach();
follow();
