// Keeps a page that watches runs up to date, and moves by keys.
// Every page can be read without it.
"use strict";

const LEAST_MS = 3000; // between two fetches of a page
const PATIENCE_MS = 20000; // for an answer, before the window counts as lost
const SHARE = 10; // of the time, at most one part in so many goes into making the page
const main = document.querySelector("main");

function follow() {
  const lost = document.querySelector(".lost"), now = document.querySelector(".now");
  let last = Date.now(), due = 0, rest = LEAST_MS, source = null;
  const soon = () => { due ||= setTimeout(again, Math.max(0, last + rest - Date.now())); };
  const again = async () => {
    clearTimeout(due);
    due = 0;
    last = Date.now();
    const free = await refresh();
    rest = Math.max(LEAST_MS, SHARE * (Date.now() - last));
    if (!main.dataset.live) {
      source?.close();
      lost.hidden = true;
    }
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
    source.addEventListener("now", event => { now.textContent = event.data; now.hidden = !event.data; });
    source.addEventListener("open", () => { lost.hidden = true; });
    source.addEventListener("error", doubt);
  };
  // A stream may end or break although the window answers: what it says to a question decides.
  const doubt = async () => {
    const asked = fetch("/icon.svg", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const answers = await asked.then(answer => answer.ok, () => false);
    lost.hidden = answers || !main.dataset.live || document.hidden;
    if (source.readyState === EventSource.CLOSED && main.dataset.live) setTimeout(listen, LEAST_MS);
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

// Keys of a page.

function step(by) {
  const links = [...main.querySelectorAll("tbody tr, .pair > div")].map(each => each.querySelector("a")).filter(Boolean);
  const at = links.findIndex(each => each === document.activeElement || each.closest("tr, .pair > div").contains(document.activeElement));
  const next = links[Math.min(Math.max(at + by, 0), links.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function turn(by) {
  main.querySelector(by < 0 ? ".earlier a" : ".later a")?.click();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName) && event.target.type !== "checkbox") return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "n") turn(1);
  else if (event.key === "p") turn(-1);
  else if (event.key === "/") main.querySelector('input[name="text"]')?.focus();
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", press);
document.querySelector(".keys").hidden = false;
follow();
