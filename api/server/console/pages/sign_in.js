// Sign in: a token is exchanged for a session cookie, so that no page keeps the token.

import { session, signIn } from "../lib/api.js";
import { h, put } from "../lib/dom.js";
import { field, input, problemBox } from "../lib/ui.js";

export function page(context) {
  context.title = "Sign in";
  const token = input({ type: "password", autocomplete: "off", required: true, placeholder: "fw_…", maxlength: "4096" });
  const result = h("div", {});
  const button = h("button", { class: "primary" }, "Sign in");
  const next = context.query.get("next") ?? "";
  async function submit(event) {
    event.preventDefault();
    put(result);
    button.disabled = true;
    try {
      await signIn(token.value.trim());
      token.value = "";
      location.hash = next.startsWith("#/") && !next.startsWith("#/sign-in") ? next : "#/fleet";
    } catch (error) {
      put(result, problemBox(error));
      token.setAttribute("aria-invalid", "true");
      token.focus();
    } finally {
      button.disabled = false;
    }
  }
  const reads = session.scopes.includes("read") || session.scopes.includes("admin");
  return h(
    "div",
    { class: "sign-in" },
    h(
      "section",
      { class: "card", "aria-label": "Sign in" },
      h("h1", {}, "Sign in"),
      h("p", { class: "muted" }, "The service exchanges your API token for a cookie that scripts cannot read. It ends after 8 hours, with the token, or when you sign out."),
      h("form", { onsubmit: submit }, field("API token", token, { hint: "`fleetwright tokens create` makes one; the first start of a service prints one." }), result, h("div", { class: "buttons" }, button)),
      reads ? h("p", { class: "note" }, h("a", { href: "#/fleet" }, "Go on without a token"), ": reading needs none here.") : null,
    ),
  );
}
