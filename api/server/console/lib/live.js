// Keeps a part of a page current: reads after each change that the service reports, and every few seconds, because not
// all that a page shows is an event. Draws again only what has changed.

import { announce, h, put } from "./dom.js";
import { problemBox } from "./ui.js";

const FOLLOWED = 3; // times as long between two reads while the service reports changes
const SOON_MS = 200; // one action may be several changes
const BETWEEN_MS = 1000; // at least, between two reads
let stream = null; // one for all parts of all pages
const waiting = new Set();

function follow() {
  if (stream !== null && stream.readyState !== EventSource.CLOSED) return;
  stream = new EventSource("v1/events?follow=true");
  stream.addEventListener("change", () => waiting.forEach((wake) => wake()));
}

// Resolves soon after a change, at the latest after a time.
function change(everyMs, signal) {
  follow();
  return new Promise((resolve, reject) => {
    const begun = performance.now();
    const isFollowing = stream.readyState === EventSource.OPEN;
    const end = () => (waiting.delete(wake), resolve());
    let timer = setTimeout(end, everyMs * (isFollowing ? FOLLOWED : 1));
    const wake = () => {
      waiting.delete(wake);
      clearTimeout(timer);
      timer = setTimeout(end, Math.max(SOON_MS, BETWEEN_MS - (performance.now() - begun)));
    };
    waiting.add(wake);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      waiting.delete(wake);
      reject(signal.reason);
    });
  });
}

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

export async function live(context, load, draw, { everyMs = 5000 } = {}) {
  const holder = h("div", { class: "rows" });
  let shown = null;
  let failed = false;
  async function refresh() {
    const data = await load(context.signal);
    const text = JSON.stringify(data);
    if (text === shown) return;
    const focused = holder.contains(document.activeElement) ? document.activeElement : null;
    // A new drawing would take what the user types or reads: a problem stays until the user dismisses it.
    const inUse =
      focused?.matches("input, select, textarea") ||
      holder.querySelector(".action-result .problem, [aria-busy]") ||
      document.querySelector("dialog[open]");
    if (inUse && shown !== null) return;
    shown = text;
    put(holder, draw(data));
    if (focused) [...holder.querySelectorAll(focused.tagName)].find((each) => nameOf(each) === nameOf(focused))?.focus({ preventScroll: true });
  }
  await refresh();
  (async () => {
    while (!context.signal.aborted) {
      await change(everyMs, context.signal);
      if (document.hidden) continue;
      try {
        await refresh();
        if (failed) announce("The service answers again");
        failed = false;
      } catch (error) {
        if (context.signal.aborted) return;
        if (!failed) holder.prepend(problemBox(error));
        failed = true;
        shown = null;
      }
    }
  })().catch(() => {});
  return Object.assign(holder, {
    async redraw() {
      shown = null;
      await refresh();
    },
  });
}

// Runs a function for all items, a few at a time, and keeps the order of the results.
export async function each(items, work, width = 6) {
  const found = new Array(items.length);
  let next = 0;
  await Promise.all(
    Array.from({ length: Math.min(width, items.length) }, async () => {
      while (next < items.length) {
        const index = next++;
        found[index] = await work(items[index], index);
      }
    }),
  );
  return found;
}
