// The console: routes by the part of the address after `#`, so that every page has a link that survives a reload.

import { can, chooseProject, loadSession, projects, session, signOut } from "./lib/api.js";
import { announce, h, put } from "./lib/dom.js";
import { ago } from "./lib/format.js";
import { problemBox, signInHref } from "./lib/ui.js";
import * as audit from "./pages/audit.js";
import * as fleet from "./pages/fleet.js";
import * as health from "./pages/health.js";
import * as placement from "./pages/placement.js";
import * as plans from "./pages/plans.js";
import * as power from "./pages/power.js";
import * as signIn from "./pages/sign_in.js";
import * as apply from "./pages/plan_apply.js";
import * as compare from "./pages/plan_compare.js";
import * as editor from "./pages/plan_editor.js";
import * as plan from "./pages/plan_result.js";
import * as sweep from "./pages/plan_sweep.js";

// A page is a function of its context: it returns its content, and may poll until `context.signal` aborts.
const ROUTES = [
  [/^fleet$/, fleet.overview, "fleet"],
  [/^targets\/(?<name>[^/]+)$/, fleet.target, "fleet"],
  [/^plans$/, plans.overview, "plans"],
  [/^plans\/new$/, editor.page, "plans"],
  [/^plans\/compare$/, compare.page, "plans"],
  [/^plans\/sweep$/, sweep.page, "plans"],
  [/^plans\/(?<id>[^/]+)$/, plan.page, "plans"],
  [/^plans\/(?<id>[^/]+)\/apply$/, apply.page, "plans"],
  [/^placements$/, placement.overview, "placements"],
  [/^placements\/(?<id>[^/]+)$/, placement.page, "placements"],
  [/^power$/, power.overview, "power"],
  [/^power\/trees\/(?<name>[^/]+)$/, power.tree, "power"],
  [/^power\/simulations\/(?<id>[^/]+)$/, power.simulation, "power"],
  [/^health$/, health.overview, "health"],
  [/^health\/diagnoses\/(?<id>[^/]+)$/, health.diagnosis, "health"],
  [/^health\/cases\/(?<id>[^/]+)$/, health.remediationCase, "health"],
  [/^audit$/, audit.page, "audit"],
  [/^sign-in$/, signIn.page, ""],
];
const SECTIONS = [
  ["fleet", "Fleet"],
  ["plans", "Plans"],
  ["placements", "Placements"],
  ["power", "Power"],
  ["health", "Health"],
  ["audit", "Audit"],
];

const main = document.getElementById("main");
let leaving = new AbortController();
let first = true;

function parsed() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  for (const [pattern, page, section] of ROUTES) {
    const match = pattern.exec(path || "fleet");
    if (!match) continue;
    const params = Object.fromEntries(Object.entries(match.groups ?? {}).map(([name, value]) => [name, decodeURIComponent(value)]));
    return { page, section, params, query: new URLSearchParams(query) };
  }
  return null;
}

async function show() {
  leaving.abort(new DOMException("the page was left", "AbortError"));
  leaving = new AbortController();
  const { signal } = leaving;
  const route = parsed();
  drawBar(route?.section);
  if (!route) return display("Not found", h("p", {}, "There is no page at this address. ", h("a", { href: "#/fleet" }, "Fleet")));
  const context = { ...route, signal, title: "Fleetwright", rerender: () => signal.aborted || show() };
  const wait = setTimeout(() => put(main, h("p", { class: "loading", role: "status" }, "Loading …")), 250);
  try {
    const content = await route.page(context);
    if (!signal.aborted) display(context.title, content);
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) {
      await loadSession(); // it may just have ended
      drawBar(route.section);
      if (session.actor === null) {
        location.replace(signInHref());
        return;
      }
    }
    display("Problem", h("div", { class: "head" }, h("h1", {}, "This page cannot be shown")), problemBox(error));
  } finally {
    clearTimeout(wait);
  }
}

function display(title, ...content) {
  document.title = title === "Fleetwright" ? title : `${title} · Fleetwright`;
  put(main, ...content);
  if (!first) {
    // A screen reader starts at the new page's heading, as after a real navigation.
    const heading = main.querySelector("h1") ?? main;
    heading.setAttribute("tabindex", "-1");
    heading.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    announce(title);
  }
  first = false;
}

function drawBar(section) {
  put(
    document.getElementById("nav"),
    SECTIONS.filter(([name]) => name !== "audit" || can("audit") || session.actor === null).map(([name, text]) =>
      h("a", { href: `#/${name}`, "aria-current": name === section ? "page" : null }, text),
    ),
  );
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  put(
    document.getElementById("account"),
    projects.names.length ? projectPicker() : null,
    h("a", { href: "docs" }, "API reference"),
    h("button", { class: "plain", type: "button", onclick: () => setTheme(dark ? "light" : "dark") }, dark ? "Light" : "Dark"),
    session.csrf_token
      ? [
          h("span", { class: "who", title: `${session.actor}; scopes: ${session.scopes.join(", ")}` }, session.name ?? session.actor),
          h("button", { class: "plain", type: "button", onclick: onSignOut }, "Sign out"),
        ]
      : session.scopes.includes("admin")
        ? h("span", { class: "muted" }, "No sign-in needed")
        : h("a", { class: "button", href: signInHref() }, "Sign in"),
  );
}

function projectPicker() {
  const options = [["", "All projects"], ...projects.names.map((name) => [name, name])];
  return h(
    "select",
    {
      "aria-label": "Project",
      onchange: async (event) => {
        chooseProject(event.target.value || null);
        await show();
        document.querySelector("#account select")?.focus();
      },
    },
    options.map(([value, text]) => h("option", { value, selected: value === (projects.chosen ?? "") }, text)),
  );
}

async function onSignOut() {
  await signOut();
  await show();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("fleetwright-theme", theme);
  } catch {
    // Storage is blocked: the choice lasts as long as the page.
  }
  drawBar(parsed()?.section);
  document.querySelector("#account button").focus();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names the page
  main.focus();
});
let reading = null;
document.addEventListener("unauthorized", () => {
  // The session has ended: its buttons no longer work.
  if (session.actor !== null) reading ??= loadSession().finally(() => ((reading = null), drawBar(parsed()?.section)));
});
window.addEventListener("hashchange", show);
setInterval(() => {
  for (const each of main.querySelectorAll("time[data-ago]")) each.textContent = ago(each.dateTime);
}, 5000);

try {
  await loadSession();
} catch (error) {
  put(main, problemBox(error));
}
await show();
