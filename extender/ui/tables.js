// The same as the map, as tables. Those of pods and vpods can be sorted by any of their columns.

import { historyTable } from "./chart.js";
import { el, table } from "./dom.js";
import { stateOf } from "./map.js";
import { byName, dimensionsOf } from "./model.js";
import { notTold, tenantTable } from "./tenants.js";

const ROWS = 500;

/**
 * The columns of each table: [id, title, what it is sorted by, whether a record has it (record, model)]. A column with the latter is shown
 * only if some record has it. The id is what the page's address says: `sortPods=-used`
 * is by used slots, the most first. Texts begin with A and numbers with the most where nothing else is said.
 */
const COLUMNS = {
  pods: [
    ["pod", "Pod", (_, [name]) => name],
    ["state", "State", (_, [, pod]) => stateOf(pod) || "takes work"],
    ["handOver", "Hand-over", (_, [, pod]) => pod.handOver ?? "", (pod) => pod.handOver],
    ["used", "Used", (_, [, pod]) => pod.used],
    ["free", "Free", (_, [, pod]) => Math.max(0, pod.free)],
    ["slots", "Slots", (_, [, pod]) => pod.slots],
    ["load", "Load, in means", (_, [, pod]) => pod.load?.toMean ?? "", (pod) => pod.load],
    ["dimensions", "Dimensions", (_, [, pod]) => dimensionsOf(pod.dimensions ?? {}), (pod) => pod.dimensions],
    ["node", "Node", (_, [, pod]) => pod.node],
    ["zone", "Zone", (_, [, pod]) => pod.zone],
    ["tenants", "Tenants", (model, [name]) => tenantsOf(model, name)],
  ],
  vpods: [
    ["vpod", "vpod", (_, [key]) => key],
    ["tenant", "Tenant", (model, [key]) => model.tenantOf(key), (_, model) => model.sharing],
    ["wanted", "Wanted", (_, [, vpod]) => vpod.wanted],
    ["placed", "Placed", (model, [key]) => model.spread(key).total],
    ["published", "Published", (_, [, vpod]) => vpod.published],
    ["why", "Why it waits", (_, [, vpod]) => vpod.waits],
    ["zones", "Zones", (model, [key]) => zonesOf(model, key)],
  ],
};
const PARAMETERS = { pods: "sortPods", vpods: "sortVPods" };

/** How the tables are sorted: by name, until somebody chooses. */
export class Order {
  #chosen = { pods: [0, false], vpods: [0, false] }; // [index of the column, whether it descends]

  /** Take what an address says; what it does not say, or says wrongly, is by name. */
  read(parameters) {
    for (const [kind, parameter] of Object.entries(PARAMETERS)) {
      const text = parameters.get(parameter) ?? "";
      const descending = text.startsWith("-");
      const index = COLUMNS[kind].findIndex(([id]) => id === text.slice(descending ? 1 : 0));
      this.#chosen[kind] = index < 0 ? [0, false] : [index, descending];
    }
  }

  /** What an address says of it: nothing for what is by name. */
  get parameters() {
    const said = Object.entries(this.#chosen).filter(([, [index, descending]]) => index > 0 || descending);
    return Object.fromEntries(said.map(([kind, [index, descending]]) => [PARAMETERS[kind], `${descending ? "-" : ""}${COLUMNS[kind][index][0]}`]));
  }

  /** {column, descending} of a table. */
  of(kind) {
    const [column, descending] = this.#chosen[kind];
    return { column, descending };
  }

  /** Sort by a column; the other way round if it is sorted by that. `numbers`: whether the most comes first. */
  choose(kind, index, numbers) {
    const [column, descending] = this.#chosen[kind];
    this.#chosen[kind] = [index, column === index ? !descending : numbers];
  }

  /** Records, [[name, record]], in their order. Equal ones are in order of their names, and no text comes last. */
  sorted(kind, model) {
    const { column, descending } = this.of(kind);
    const keyOf = COLUMNS[kind][column][2];
    const keyed = [...model[kind]].map((record) => [keyOf(model, record), record]);
    const compare = ([a, [name]], [b, [other]]) => {
      if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
      const order = typeof a === "number" ? a - b : byName(a, b);
      return (descending ? -order : order) || byName(name, other);
    };
    return keyed.sort(compare).map(([, record]) => record);
  }
}

/** Tables of tenants, where they share the pool, of pods, vpods and the pool over time. `link(kind, name)` makes a button; `sorted(kind, title)` is told what a person chose. */
export function tables(model, rows, slots, link, order, sorted) {
  return [
    model.sharing && part("tenants", tenantTable(model, link, slots), notTold(model), "those that wait for least"),
    part("pods", [sortable("Pods", "pods", model, link, order, sorted)], model.pods.size - ROWS),
    part("vpods", [sortable("vpods", "vpods", model, link, order, sorted)], model.vpods.size - ROWS),
    part("history", [historyTable(rows)], 0),
  ].filter(Boolean);
}

function sortable(name, kind, model, link, order, sorted) {
  const columns = COLUMNS[kind].filter(([, , , has]) => !has || [...model[kind].values()].some((record) => has(record, model)));
  const place = (column) => columns.indexOf(COLUMNS[kind][column]);
  const shown = order.sorted(kind, model).slice(0, ROWS);
  const one = kind === "pods" ? "pod" : "vpod";
  const rows = shown.map((record) => columns.map(([, , keyOf], index) => (index === 0 ? link(one, record[0]) : keyOf(model, record))));
  const by = (index) => {
    order.choose(kind, COLUMNS[kind].indexOf(columns[index]), typeof rows[0]?.[index] === "number");
    sorted(`${name} sorted by ${columns[index][1]}, ${order.of(kind).descending ? "descending" : "ascending"}`);
  };
  return table(`${name} (${model[kind].size.toLocaleString("en")})`, columns.map(([, title]) => title), rows, { name: kind, column: place(order.of(kind).column), descending: order.of(kind).descending, by });
}

const tenantsOf = (model, pod) => model.segments(pod).map(({ tenant, slots }) => `${tenant} ${slots}`).join(", ");

const zonesOf = (model, vpod) => model.spread(vpod).zones.map(([zone, here]) => `${zone || "no node"} ${here}`).join(", ");

/** A table in its frame. `rest`: rows that are left out, of which `hint` says something. */
function part(kind, content, rest, hint = "search for them") {
  const name = content[0].querySelector("caption").textContent;
  const left = rest > 0 && el("p", { class: "quiet" }, `and ${rest.toLocaleString("en")} more: ${hint}`);
  return el("div", { class: "scroll", "data-table": kind, tabindex: "0", role: "region", "aria-label": name }, content, left);
}
