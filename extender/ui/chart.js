// The pool over time: used and free slots, stacked, and on top the slots that are waited for.

import { el, setText, svg, table } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 96;
const SPAN_S = 60; // at least; an hour once there is one
const SAMPLE_S = 10;
const ROWS = 13;

const LAYERS = [
  ["unserved", "used slots that nobody serves", (row) => Math.min(row.lost, row.used)],
  ["used", "used slots", (row) => row.used - Math.min(row.lost, row.used)],
  ["free", "free slots", (row) => row.free],
  ["closed", "closed slots", (row) => row.closed],
  ["waits", "slots that are waited for", (row) => row.missing],
];

/** The samples of the stream, oldest first, with what is now: [{time, slots, used, free, waits (vreplicas), pods, missing (slots), closed, lost (slots), unserved (vreplicas)}]. */
export function rowsOf(history, pool) {
  const rows = [...history]
    .map(([time, [slots, used, free, waits, pods, missing, closed = 0, lost = 0, unserved = 0]]) => ({ time: Number(time), slots, used, free, waits, pods, missing, closed, lost, unserved }))
    .sort((a, b) => a.time - b.time);
  if (pool) {
    const now = rows.length > 0 ? rows.at(-1).time + SAMPLE_S : Date.now() / 1000; // by the server's clock, where it has told one
    rows.push({ time: now, slots: pool.slots, used: pool.usedSlots, free: pool.freeSlots, waits: pool.pendingVReplicas, pods: pool.pods, missing: pool.pendingSlots, closed: pool.closedSlots ?? 0, lost: pool.unservedSlots ?? 0, unserved: pool.unservedVReplicas ?? 0 });
  }
  return rows;
}

export class Chart {
  #root;
  #paths = new Map();
  #top = el("span", { class: "axis top-end" });
  #start = el("span", { class: "axis" });
  #image;

  constructor(root) {
    this.#root = root;
    for (const [name] of LAYERS) this.#paths.set(name, svg("path", { class: `layer ${name}` }));
    this.#image = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, [...this.#paths.values()]);
    const key = LAYERS.map(([name, title]) => el("span", { class: "key" }, el("i", { class: `layer ${name}` }), title));
    root.append(
      el("figcaption", {}, el("span", {}, "Over time"), key),
      el("div", { class: "plot" }, this.#top, this.#image),
      el("div", { class: "times" }, this.#start, el("span", { class: "axis" }, "now")),
    );
  }

  /** Draw rows as `rowsOf` gives them. */
  draw(rows) {
    this.#root.hidden = rows.length === 0;
    if (rows.length === 0) return;
    const end = rows.at(-1).time;
    const begin = Math.min(rows[0].time, end - SPAN_S);
    const most = Math.max(1, ...rows.map((row) => row.used + row.free + row.closed + row.missing));
    const x = (row) => ((row.time - begin) / (end - begin)) * WIDTH;
    let below = rows.map(() => 0);
    for (const [name, , read] of LAYERS) {
      const above = rows.map((row, index) => below[index] + read(row));
      const y = (value) => HEIGHT - (value / most) * HEIGHT;
      const upper = rows.map((row, index) => `${x(row).toFixed(1)},${y(above[index]).toFixed(1)}`);
      const lower = rows.map((row, index) => `${x(row).toFixed(1)},${y(below[index]).toFixed(1)}`).reverse();
      this.#paths.get(name).setAttribute("d", `M${[...upper, ...lower].join("L")}Z`);
      below = above;
    }
    const last = rows.at(-1);
    setText(this.#top, most.toLocaleString("en"));
    setText(this.#start, `${Math.round((end - begin) / 60)} min ago`);
    this.#image.setAttribute("aria-label", `Now ${last.used} slots used${last.lost > 0 ? `, ${last.lost} of them served by nobody` : ""}, ${last.free} free, ${last.closed} closed, ${last.waits} vreplicas wait for ${last.missing} slots; the table view has the numbers over time`);
  }
}

/** The same as a table, thinned out. */
export function historyTable(rows) {
  const step = Math.max(1, Math.ceil(rows.length / ROWS));
  const shown = rows.filter((_, index) => (rows.length - 1 - index) % step === 0);
  const time = (row) => new Date(row.time * 1000).toLocaleTimeString("en-GB");
  return table(
    "Over time",
    ["Time", "Pods", "Slots", "Used", "Free", "Closed", "vreplicas that wait", "that nobody serves"],
    shown.map((row) => [time(row), row.pods, row.slots, row.used, row.free, row.closed, row.waits, row.unserved]),
  );
}
