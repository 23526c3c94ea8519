// Figures as people read them. Every figure keeps its unit.

const number = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
const fixed = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
const NONE = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export const num = (value, digits = 2) => (known(value) ? number(digits).format(value) : NONE);
export const usd = (value) => (known(value) ? `$${fixed(2).format(value)}` : NONE);
export const percent = (value, digits = 0) => (known(value) ? `${fixed(digits).format(value * 100)} %` : NONE);
export const signed = (value, format = num) =>
  !known(value) ? NONE : value > 0 ? `+${format(value)}` : value < 0 ? `−${format(-value)}` : "0";

export function watts(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) >= 1e6) return `${number(2).format(value / 1e6)} MW`;
  return Math.abs(value) >= 1e3 ? `${number(1).format(value / 1e3)} kW` : `${number(0).format(value)} W`;
}

export function ms(value) {
  if (!known(value)) return NONE;
  return value >= 10_000 ? `${number(1).format(value / 1000)} s` : `${number(value < 10 ? 1 : 0).format(value)} ms`;
}

export function duration(seconds) {
  if (!known(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s < 10) return `${number(1).format(s)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${number(1).format(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

export function ago(moment, now = Date.now()) {
  if (!moment) return "never";
  const seconds = (now - new Date(moment).getTime()) / 1000;
  if (seconds < -1) return `in ${duration(-seconds)}`;
  return seconds < 2 ? "now" : `${duration(seconds)} ago`;
}

const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
export const at = (moment) => (moment ? clock.format(new Date(moment)) : NONE);

// Ids sort by time, so their ends differ.
export const short = (id) => (id && id.length > 13 ? `…${id.slice(-8)}` : (id ?? NONE));
export const words = (value) => String(value ?? NONE).replaceAll("_", " ").replaceAll("-", " ");
export const plural = (count, noun) => `${num(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
