// Keeps a part of a page current: reads every few seconds and draws again only what has changed.

import { announce, h, put } from "./dom.js";
import { pause } from "./api.js";
import { problemBox } from "./ui.js";

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
      await pause(everyMs, context.signal);
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
