// From a plan to the parts of a target (deployments, worker groups, runs), by the keys that the controller uses:
// a GPU type, or a size, role or option of one, each also at one clock level; the most specific key takes the replicas.

export const partsOf = (application) =>
  application.deployments ?? application.groups ?? application.objects ?? { [application.gpu]: application.run };

function optionOf(entry) {
  return entry.offer === null ? entry.option : entry.option.slice(entry.offer.length + 1);
}

export function partOf(entry, keys) {
  const option = optionOf(entry);
  const role = entry.offer === null ? null : (["prefill", "decode"].find((each) => option.endsWith(`-${each}`)) ?? null);
  const scopes = [`/${option}`, role && `/${role}`, `/x${entry.gpus_per_replica}`, ""].filter((scope) => scope !== null);
  const clocks = entry.clock === null ? [""] : [`@${Number(entry.clock.toPrecision(6))}`, ""];
  for (const scope of scopes)
    for (const clock of clocks) if (keys.includes(`${entry.gpu}${scope}${clock}`)) return `${entry.gpu}${scope}${clock}`;
  return null;
}

// The price of one replica: its share of the hired units.
export function replicaPrice(plan, entry) {
  const hire = plan.hires.find((each) => (entry.offer === null ? each.name === `${entry.workload}/${entry.option}` : each.offer === entry.offer));
  if (!hire) return null;
  return hire.gpus_per_unit === null ? hire.price_usd_per_h : (hire.price_usd_per_h / hire.gpus_per_unit) * entry.gpus_per_replica;
}

// What a plan means for a target: replicas, $/h and W of one replica of each part, and what no part takes.
export function planned(plan, spec) {
  const keys = Object.keys(partsOf(spec.application));
  const parts = Object.fromEntries(keys.map((key) => [key, { replicas: 0, usd: 0, w: 0, knowsW: true, knowsUsd: true }]));
  const left = [];
  for (const entry of plan.allocation.filter((each) => each.workload === spec.workload)) {
    const part = parts[partOf(entry, keys)];
    if (!part) {
      left.push(entry);
      continue;
    }
    const price = replicaPrice(plan, entry);
    part.replicas += entry.count;
    part.usd += (price ?? 0) * entry.count;
    part.knowsUsd &&= price !== null;
    part.w += entry.power_w ?? 0;
    part.knowsW &&= entry.power_w !== null;
  }
  return { parts, left };
}

// $/h and W of some replicas of each part, at the plan's figures for one replica; null where the plan has none of a part.
export function figures(plan, spec, replicas) {
  const { parts } = planned(plan, spec);
  let usd = 0;
  let w = 0;
  for (const [key, count] of Object.entries(replicas)) {
    const part = parts[key];
    if (!count) continue;
    if (!part?.replicas) return { usd: null, w: null };
    usd = part.knowsUsd && usd !== null ? usd + (part.usd / part.replicas) * count : null;
    w = part.knowsW && w !== null ? w + (part.w / part.replicas) * count : null;
  }
  return { usd, w };
}

export const sum = (counts) => Object.values(counts ?? {}).reduce((total, count) => total + count, 0);
