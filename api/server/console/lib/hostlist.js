// Expands the names of a topology: `row-[1-2,7]` is row-1, row-2 and row-7; leading zeros stay.

const MAX_NAMES = 100_000;

export function expanded(text) {
  const match = /^([^[\]]*)\[([^[\]]+)\](.*)$/.exec(text);
  if (!match) return [text];
  const [, head, ranges, tail] = match;
  const rest = expanded(tail);
  const found = [];
  for (const range of ranges.split(",")) {
    const [first, last = first] = range.trim().split("-");
    for (let number = Number(first); number <= Number(last) && found.length < MAX_NAMES; number++)
      for (const end of rest) found.push(`${head}${String(number).padStart(first.length, "0")}${end}`);
  }
  return found;
}
