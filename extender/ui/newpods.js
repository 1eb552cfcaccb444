// The pods that a plan would add: which they are, and how they are shown, before all that is there.

import { count, el } from "./dom.js";
import { byName } from "./model.js";

const SHOWN = 200;

/**
 * The pods of a plan that are not there yet: [{name, slots, used, vreplicas, tenants: [[tenant, slots]]}], by name.
 * `question` and `plan`: the body of `POST /v1/plan`, and its answer. Slots are those of the question, or else the pool's.
 */
export function podsToCome(model, pool, question, { summary = {}, vpods = [] }) {
  const { podsBefore = 0, podsAfter = 0 } = summary;
  const found = new Map();
  const slots = question.set?.slotsPerPod ?? model.pools.get(pool)?.slotsPerPod ?? 0;
  const isNew = (name) => !model.pods.has(name) && (!model.notListed.get("pods") || ordinal(name) >= podsBefore);
  const add = (name) => found.get(name) ?? found.set(name, { name, slots, used: 0, vreplicas: 0, tenants: new Map() }).get(name);
  for (const { name: vpod, after = {} } of vpods) {
    for (const [name, here] of Object.entries(after)) {
      if (here <= 0 || !isNew(name)) continue;
      const taken = here * (model.vpods.get(vpod)?.weight ?? 1);
      const pod = add(name);
      pod.used += taken;
      pod.vreplicas += here;
      const tenant = model.tenantOf(vpod);
      pod.tenants.set(tenant, (pod.tenants.get(tenant) ?? 0) + taken);
    }
  }
  const example = model.pods.keys().next().value ?? found.keys().next().value;
  const stem = example?.slice(0, example.lastIndexOf("-") + 1);
  for (let index = 0; stem && found.size < podsAfter - podsBefore && index < podsAfter; index += 1) {
    if (isNew(`${stem}${index}`)) add(`${stem}${index}`); // nothing is placed on it yet
  }
  return [...found.values()].map((pod) => ({ ...pod, tenants: [...pod.tenants].sort(([a], [b]) => byName(a, b)) })).sort((a, b) => byName(a.name, b.name));
}

const ordinal = (name) => Number(name.slice(name.lastIndexOf("-") + 1));

/** A section of the map for them. They are no buttons: nothing is known of a pod that does not exist. */
export function newPods(pods, palette) {
  const line = ({ name, slots, used, vreplicas, tenants }) => {
    const parts = tenants.map(([tenant, taken]) => part(palette.classes(tenant), taken));
    const bar = el("span", { class: "bar" }, parts, slots > used && part("free", slots - used));
    return el("li", { title: `${name}: new, ${used} of ${slots} slots used` }, el("span", { class: "name" }, name), bar, el("span", { class: "figure" }, `${used}/${slots}`), el("span", { class: "mark more" }, `new${vreplicas ? ` +${vreplicas}` : ""}`));
  };
  const rest = pods.length - SHOWN;
  return el(
    "section",
    { class: "zone to-come", "data-key": "", "aria-label": "New pods of the plan" },
    el("h2", {}, el("span", {}, "New in this plan"), el("span", { class: "figure" }, count(pods.length, "pod"))),
    el("ul", {}, pods.slice(0, SHOWN).map(line), rest > 0 && el("li", { class: "quiet" }, `and ${rest.toLocaleString("en")} more`)),
  );
}

function part(classes, slots) {
  const made = el("i", { class: classes });
  made.style.flexGrow = String(slots);
  return made;
}
