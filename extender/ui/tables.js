// The same as the map, as tables.

import { historyTable } from "./chart.js";
import { el, table } from "./dom.js";
import { stateOf } from "./map.js";
import { byName } from "./model.js";

const ROWS = 500;

/** Tables of pods, vpods and the pool over time. `link(kind, name)` makes a button. */
export function tables(model, rows, link) {
  const pods = [...model.pods].sort(([a], [b]) => byName(a, b));
  const vpods = [...model.vpods].sort(([a], [b]) => byName(a, b));
  const podRow = ([name, pod]) => {
    const tenants = model.segments(name).map(({ tenant, slots }) => `${tenant} ${slots}`).join(", ");
    return [link("pod", name), pod.node, pod.zone, pod.slots, pod.used, Math.max(0, pod.free), tenants, stateOf(pod) || "takes work"];
  };
  const vpodRow = ([name, { wanted, published, waits }]) => {
    const { total, zones } = model.spread(name);
    return [link("vpod", name), wanted, total, published, zones.map(([zone, here]) => `${zone || "no node"} ${here}`).join(", "), waits];
  };
  return [
    part(table(`Pods (${pods.length})`, ["Pod", "Node", "Zone", "Slots", "Used", "Free", "Tenants", "State"], pods.slice(0, ROWS).map(podRow)), pods.length),
    part(table(`vpods (${vpods.length})`, ["vpod", "Wanted", "Placed", "Published", "Zones", "Why it waits"], vpods.slice(0, ROWS).map(vpodRow)), vpods.length),
    part(historyTable(rows), rows.length),
  ];
}

function part(content, size) {
  const name = content.querySelector("caption").textContent;
  const rest = size - ROWS;
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, content, rest > 0 && el("p", { class: "quiet" }, `and ${rest.toLocaleString("en")} more: search for them`));
}
