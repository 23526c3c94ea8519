// Expands a name of a topology that stands for a range: `row-[1-3]` is row-1, row-2 and row-3; leading zeros stay.

export function expanded(series) {
  const match = /\[(\d+)-(\d+)\]/.exec(series);
  if (!match) return [series];
  const [range, low, high] = match;
  const before = series.slice(0, match.index);
  const after = series.slice(match.index + range.length);
  const count = Math.max(0, Math.min(4096, Number(high) - Number(low) + 1));
  return Array.from({ length: count }, (_, index) => `${before}${String(Number(low) + index).padStart(low.length, "0")}${after}`);
}
