// Calls the API of the service that served this page. URLs are relative, so that a gateway may add a prefix.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `the service answered ${status}`);
    this.status = status;
    this.type = body.type ?? "about:blank";
    this.errors = body.errors ?? [];
    this.requestId = body.request_id ?? null;
  }
}

export const session = { actor: null, name: null, scopes: [], project: null, csrf_token: null, expires_at: null };

// The projects among which the caller may choose; none where it has one only. `chosen` null: all of them.
export const projects = { names: [], chosen: null };
const PROJECT_KEY = "fleetwright-project";

export const can = (scope) => session.scopes.includes(scope) || session.scopes.includes("admin");

export async function call(method, path, { body, headers = {}, signal, text = false } = {}) {
  const sent = { Accept: "application/json, */*;q=0.5", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (projects.chosen !== null) sent["Fleetwright-Project"] = projects.chosen;
  if (method !== "GET" && session.csrf_token) sent["X-CSRF-Token"] = session.csrf_token;
  let response;
  try {
    response = await fetch(path.replace(/^\//, ""), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "the service does not answer; the page tries again" });
  }
  if (!response.ok) {
    const problem = new Problem(response.status, await response.json().catch(() => ({})));
    if (response.status === 401) document.dispatchEvent(new CustomEvent("unauthorized"));
    throw problem;
  }
  const content = response.status === 204 ? null : text ? await response.text() : await response.json();
  return {
    data: content,
    etag: response.headers.get("etag"),
    status: response.status,
    location: response.headers.get("location"),
    type: response.headers.get("content-type"),
  };
}

export const read = async (path, signal) => (await call("GET", path, { signal })).data;

// Null where the thing does not exist.
export async function find(path, signal) {
  try {
    return await read(path, signal);
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

// All items of a list, up to a limit that keeps a page fast.
export async function list(path, { limit = 1000, signal } = {}) {
  const items = [];
  let cursor = null;
  do {
    const query = new URLSearchParams({ limit: String(Math.min(200, limit - items.length)) });
    if (cursor) query.set("cursor", cursor);
    const page = await read(`${path}?${query}`, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && items.length < limit);
  return items;
}

export const page = (path, { limit, cursor, signal, chosen = {} }) =>
  read(`${path}?${query({ limit: String(limit), cursor, ...chosen })}`, signal);

// The query of those parameters that have a value.
export const query = (parameters) => new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();

// Stored results never change, so each is read once.
const results = new Map();
export async function result(path, signal) {
  if (!results.has(path)) {
    if (results.size > 60) results.delete(results.keys().next().value);
    results.set(path, await read(path, signal));
  }
  return results.get(path);
}

const DONE = new Set(["succeeded", "failed", "cancelled"]);
const POLL_MS = 400;

// Creates a stored result. A service with jobs answers 202 and reports progress; one without answers when it is done.
// Aborting the signal cancels the job.
export async function solve(path, body, { signal, onProgress }) {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  onProgress({ state: "sent", share: null });
  const answer = await call("POST", path, {
    body,
    signal,
    headers: { Prefer: "respond-async", "Idempotency-Key": key },
  });
  if (answer.status !== 202) return answer.data;
  const url = answer.location;
  try {
    for (;;) {
      const job = await read(url, signal);
      onProgress(job);
      if (DONE.has(job.state)) {
        if (job.state === "succeeded") return await result(job.result, signal);
        const problem = job.problem ?? { detail: `the job was ${job.state}` };
        throw new Problem(problem.status ?? 422, problem);
      }
      await pause(POLL_MS, signal);
    }
  } catch (error) {
    if (signal?.aborted) await call("DELETE", url).catch(() => {});
    throw error;
  }
}

export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

export async function loadSession() {
  try {
    Object.assign(session, await read("v1/session"));
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    Object.assign(session, { actor: null, name: null, scopes: [], project: null, csrf_token: null, expires_at: null });
  }
  await loadProjects();
  return session;
}

async function loadProjects() {
  projects.chosen = null;
  const found = session.project === null && can("read") ? await list("v1/projects").catch(() => []) : [];
  const names = [...new Set(["default", ...found.map((each) => each.name)])].sort();
  projects.names = names.length > 1 ? names : [];
  const before = remembered();
  if (projects.names.includes(before)) projects.chosen = before;
}

export function chooseProject(name) {
  projects.chosen = name;
  results.clear();
  try {
    if (name === null) sessionStorage.removeItem(PROJECT_KEY);
    else sessionStorage.setItem(PROJECT_KEY, name);
  } catch {
    // Storage is blocked: the choice lasts as long as the page.
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(PROJECT_KEY);
  } catch {
    return null;
  }
}

export async function signIn(token) {
  const answer = await call("POST", "v1/session", { headers: { Authorization: `Bearer ${token}` } });
  Object.assign(session, answer.data);
  await loadProjects();
}

export async function signOut() {
  await call("DELETE", "v1/session");
  await loadSession();
}
