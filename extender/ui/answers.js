// Questions to the server, and how its answers are shown.

import { count, el, table } from "./dom.js";

const LISTED = 50;
const TRIES = 5; // the server explains one at a time
const AGAIN_MS = 1_500;

/** Ask; {value} or {problem: text}. `body`: what to POST, undefined for a GET. */
export async function ask(path, body) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const reply = await fetch(path, body === undefined ? {} : post);
    if (reply.ok) return { value: await reply.json() };
    const text = (await reply.text()).trim().slice(0, 400);
    if (reply.status === 404 && /^404:/.test(text)) return { problem: "This replica does not answer such questions.", absent: true };
    if (reply.status === 503) return { problem: `Busy: ${text || "try again in a moment"}`, busy: true };
    return { problem: text || `The server answered ${reply.status}.` };
  } catch {
    return { problem: "The server does not answer." };
  }
}

/** What explains a vpod or a pod: `/v1/explain`, or what `/state.json` knows where that is not there. `still()`: whether it is wanted. */
export async function explain(kind, name, pool, still) {
  const key = kind === "pod" ? `${pool.split("/")[0]}/${name}` : name;
  const question = `v1/explain?${new URLSearchParams({ [kind]: key })}`;
  let found = await ask(question);
  for (let tries = 1; found.busy && tries < TRIES && still(); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    found = await ask(question);
  }
  if (!found.absent || kind !== "vpod") return found;
  const state = await ask(`state.json?${new URLSearchParams({ vpod: name })}`);
  const known = state.value?.pools?.flatMap((it) => it.vpodList).find((vpod) => vpod.name === name);
  const steps = known?.explanation ?? [];
  return steps.length > 0 ? { value: { outcome: steps.at(-1), steps: steps.slice(0, -1) } } : found;
}

/** An answer of `/v1/explain` as elements. */
export function explanation(answer) {
  const { outcome, steps = [], decided, fixes = [], candidates = [], history = [], size, rule } = answer;
  return [
    outcome && el("p", { class: "outcome" }, outcome),
    size && el("p", {}, poolSize(size)),
    size?.withoutNode > 0 && el("p", { class: "bad" }, withoutNode(size)),
    rule && el("p", { class: "quiet" }, `The profile's rule for new ones: ${rule}`),
    decided && el("p", { class: "quiet" }, `Decided ${moment(decided.at)}${decided.by ? ` by ${decided.by}` : ""}${decided.why ? `: ${decided.why}` : ""}`),
    fixes.length > 0 && fixList(fixes),
    steps.length > 0 && folded(`How it was decided (${steps.length})`, el("ul", {}, steps.slice(0, LISTED).map((step) => el("li", {}, step)))),
    candidates.length > 0 && folded(`Candidates (${candidates.length})`, candidateTable(candidates)),
    history.length > 0 && folded(`History (${history.length})`, historyList(history)),
    Object.keys(answer).length === 0 && el("p", { class: "quiet" }, "Nothing is known of it yet."),
  ].filter(Boolean);
}

function poolSize({ replicas, slotsPerPod, schedulable, freeSlots, wanted, unlimited }) {
  const text = `The pool has ${count(replicas, "pod")} of ${slotsPerPod} slots (${schedulable} schedulable, ${freeSlots} slots free) and needs ${unlimited}`;
  if (wanted < unlimited) return `${text}: maxPods holds it at ${wanted}.`;
  return wanted > replicas ? `${text}: it grows by itself.` : `${text}.`;
}

function withoutNode({ withoutNode: pods, refusal }) {
  return `${count(pods, "pod")} of it ${pods === 1 ? "waits" : "wait"} for a node${refusal ? `; kube-scheduler finds none: ${refusal}` : ""}`;
}

function fixList(fixes) {
  const line = (fix) => {
    const object = fix.object ? ` (${fix.object})` : "";
    const effect = fix.nodes === undefined ? placed(fix) : taken(fix.nodes);
    const notes = [fix.byItself && "by itself", fix.onlyBeforeOthers && "only if it is served before the others that wait", fix.note].filter(Boolean);
    return el("li", {}, el("strong", {}, String(fix.change)), values(fix), object, effect && `: ${effect}`, notes.map((note) => `; ${note}`));
  };
  return el("section", {}, el("h3", {}, "What would make it fit"), el("ul", {}, fixes.slice(0, LISTED).map(line)));
}

/** Numbers from and to, where the change does not name them itself. */
function values({ change, from, to }) {
  const named = new Set(String(change).match(/[0-9]+/g));
  return typeof from === "number" && typeof to === "number" && !named.has(String(to)) ? ` (${from} to ${to})` : "";
}

/** What a fix of a vpod does. */
function placed({ places = 0, left, moves }) {
  return [`places ${count(places, "vreplica")}`, left && `${count(left, "vreplica")} still wait`, moves && `moves ${moves}`].filter(Boolean).join(", ");
}

/** What a fix of a pod does: the nodes that take it then. */
function taken(nodes) {
  return nodes.length > 0 ? `then ${nodes.slice(0, 3).join(", ")}${nodes.length > 3 ? " and others" : ""} would take it` : "";
}

function candidateTable(candidates) {
  const scored = candidates.some((it) => typeof it.score === "number");
  const number = (value) => (typeof value === "number" ? value : "");
  const shown = candidates.slice(0, LISTED).map((it) => [
    String(it.pod ?? it.node ?? ""),
    [String(it.verdict ?? ""), it.vreplicas ? ` \u00d7${it.vreplicas}` : ""].join(""),
    number(it.freeSlots),
    ...(scored ? [number(it.score)] : []),
    String(it.text || it.reason || ""),
  ]);
  const rest = candidates.length - shown.length;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, table("Candidates", ["Pod", "Verdict", "Free", ...(scored ? ["Score"] : []), "Why"], shown), rest > 0 && el("p", { class: "quiet" }, `and ${rest} more`));
}

function historyList(history) {
  return el("ul", {}, history.slice(0, LISTED).map(({ at, by, text }) => el("li", {}, `${moment(at)}: ${text}${by ? ` (${by})` : ""}`)));
}

function folded(title, content) {
  return el("details", {}, el("summary", {}, title), content);
}

function moment(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? String(time ?? "") : at.toLocaleString("en-GB", { dateStyle: "short", timeStyle: "medium" });
}
