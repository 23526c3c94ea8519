// Builds elements. Text is always set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else if (name === "checked") element.checked = true;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Text in which `backticks` mark code, as in the messages of the API.
export const rich = (text) =>
  typeof text === "string" ? text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part)) : text;

let ids = 0;
export const newId = (prefix) => `${prefix}-${++ids}`;

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
