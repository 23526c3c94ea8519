// Shortens a stored request to what differs from the defaults, by the schema that the service publishes.

import { read } from "./api.js";

let loading = null;
const schemas = () => (loading ??= read("openapi.json").then((document) => document.components.schemas));

export async function shortened(request, name) {
  const all = await schemas();
  const root = all[`${name}-Input`] ?? all[name];
  return root ? prune(request, root, all) : request;
}

function prune(value, schema, all) {
  const found = chosen(value, schema, all);
  if (Array.isArray(value)) return value.map((item) => prune(item, found.items ?? {}, all));
  if (value === null || typeof value !== "object") return value;
  const kept = {};
  // In the order of the schema, which starts with what names a thing; stored documents are sorted by name.
  const order = Object.keys(found.properties ?? {});
  const entries = Object.entries(value).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  for (const [key, item] of entries) {
    const property = found.properties?.[key] ?? (typeof found.additionalProperties === "object" ? found.additionalProperties : {});
    if (item === null && !(found.required ?? []).includes(key)) continue;
    const short = prune(item, property, all);
    const isDefault = "default" in property && JSON.stringify(item) === JSON.stringify(property.default);
    const isEmpty = short !== null && typeof short === "object" && !Object.keys(short).length && !(found.required ?? []).includes(key);
    if (!isDefault && !isEmpty) kept[key] = short;
  }
  return kept;
}

// The member of a union that has the value's keys.
function chosen(value, schema, all) {
  if (schema.$ref) return chosen(value, all[schema.$ref.split("/").at(-1)] ?? {}, all);
  if (schema.allOf?.length === 1) return chosen(value, schema.allOf[0], all);
  const options = (schema.anyOf ?? schema.oneOf ?? []).map((option) => chosen(value, option, all));
  if (!options.length) return schema;
  if (Array.isArray(value)) return options.find((option) => option.type === "array") ?? {};
  const keys = value !== null && typeof value === "object" ? Object.keys(value) : [];
  return options.find((option) => keys.every((key) => option.properties?.[key])) ?? {};
}
