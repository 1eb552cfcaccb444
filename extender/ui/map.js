// The map: zones, in them nodes, in them adapter pods as bars of slots. Elements are kept and changed where something has
// changed; a pod that moves is moved. What has changed is drawn for some milliseconds a frame, however much it is, so that the
// page never hangs. One of its buttons is in the tab order, arrows go on from there.

import { count, el, percent, setAttribute, setText } from "./dom.js";
import { byName } from "./model.js";
import { newPods } from "./newpods.js";

const COMPACT_PODS = 120;
const DENSE_PODS = 500;
const LINES_SLOTS = 40; // more slots than that are not drawn one by one
const NOWHERE = "";
const FRAME_MS = 8;
const FIRST_MS = 250; // for the first time: then there is nothing to look at yet that could hang

export class PodMap {
  #root;
  #model;
  #palette;
  #select;
  #zones = new Map();
  #nodes = new Map();
  #pods = new Map();
  #selection = null;
  #deltas = new Map();
  #toCome = []; // pods that a plan would add
  #newPods = null; // the section with them
  #queue = new Set(); // pods to draw
  #first = true;

  /** `select(kind, name)` is called for what a person chooses. */
  constructor(root, model, palette, select) {
    this.#root = root;
    this.#model = model;
    this.#palette = palette;
    this.#select = select;
    root.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-kind]");
      if (button) select(button.dataset.kind, button.dataset.name);
    });
    root.addEventListener("keydown", (event) => this.#move(event));
    root.addEventListener("focusin", (event) => this.#rove(event.target));
  }

  /** Note what has changed: sets of pod and node names; `draw` draws it. */
  update(pods, nodes) {
    for (const name of [...pods].sort(byName)) this.#queue.add(name);
    for (const name of nodes) if (this.#nodes.has(name)) this.#placeNode(name);
    const size = this.#model.pods.size;
    const density = size > DENSE_PODS ? "dense" : size > COMPACT_PODS ? "compact" : "roomy";
    if (this.#root.classList.contains(density)) return;
    this.#root.classList.remove("dense", "compact", "roomy");
    this.#root.classList.add("map", density);
  }

  /** Draw for the time that a frame has; whether all is drawn. */
  draw() {
    if (this.#queue.size === 0) return true;
    const end = performance.now() + (this.#first ? FIRST_MS : FRAME_MS);
    for (const name of this.#queue) {
      this.#queue.delete(name);
      if (this.#model.pods.has(name)) this.#drawPod(name);
      else this.#forget(name);
      if (performance.now() > end) break;
    }
    if (this.#queue.size > 0) return false;
    this.#first = false;
    this.#drop();
    if (this.#toCome.length > 0) this.#drawNewPods();
    this.#count();
    this.#mark();
    if (!this.#root.querySelector('[tabindex="0"]')) this.#root.querySelector("button:not(:disabled)")?.setAttribute("tabindex", "0");
    return true;
  }

  #forget(name) {
    this.#pods.get(name)?.item.remove();
    this.#pods.delete(name);
  }

  /** Show where a selection is: {kind, name}, or null. Its part of the bars is drawn with the next `draw`. */
  select(selection) {
    const before = this.#selection;
    this.#selection = selection;
    this.#mark();
    this.#root.querySelector("button[aria-current]")?.scrollIntoView({ block: "nearest" });
    const inBars = [before, selection].filter((it) => it?.kind === "vpod" || it?.kind === "tenant");
    for (const { kind, name } of inBars) for (const pod of this.#model.podsIn(kind, name)) this.#queue.add(pod);
  }

  /** Mark what is selected, and the pods that belong to it. */
  #mark() {
    const inside = new Set(this.#selection ? this.#model.podsIn(this.#selection.kind, this.#selection.name) : []);
    this.#root.classList.toggle("selecting", inside.size > 0);
    for (const [name, { button }] of this.#pods) if (button.classList.contains("inside") !== inside.has(name)) button.classList.toggle("inside");
    for (const button of this.#root.querySelectorAll("button[aria-current]")) button.removeAttribute("aria-current");
    if (this.#selection) this.#buttonOf(this.#selection)?.setAttribute("aria-current", "true");
  }

  #buttonOf({ kind, name }) {
    return [...this.#root.querySelectorAll(`button[data-kind="${kind}"]`)].find((button) => button.dataset.name === name);
  }

  /** Show what a plan would change: pod name -> vreplicas more or fewer, and the pods that it would add. */
  plan(deltas, toCome = []) {
    const names = new Set([...this.#deltas.keys(), ...deltas.keys()]);
    this.#deltas = deltas;
    this.#toCome = toCome;
    this.#drawNewPods();
    for (const name of names) this.#drawBar(name);
  }

  /** One that has come meanwhile is no longer among them. */
  #drawNewPods() {
    const left = this.#toCome.filter(({ name }) => !this.#model.pods.has(name));
    const drawn = Number(this.#newPods?.dataset.pods ?? 0);
    if (left.length === drawn && left.length === 0) return;
    this.#newPods?.remove();
    this.#newPods = left.length > 0 ? newPods(left, this.#palette) : null;
    if (!this.#newPods) return;
    this.#newPods.dataset.pods = String(left.length);
    this.#root.prepend(this.#newPods);
  }

  // -- pods ---------------------------------------------------------------------------------------------------------

  #drawPod(name) {
    const { node } = this.#model.pods.get(name);
    if (!this.#pods.has(name)) {
      const bar = el("span", { class: "bar" });
      const cut = Math.max(0, name.lastIndexOf("-")); // its ordinal is never cut short
      const label = el("span", { class: "name" }, el("span", { class: "stem" }, name.slice(0, cut)), name.slice(cut));
      const figure = el("span", { class: "figure" });
      const mark = el("span", { class: "mark" });
      const button = el("button", { class: "pod", type: "button", tabindex: "-1", "data-kind": "pod", "data-name": name }, label, bar, figure, mark);
      this.#pods.set(name, { item: el("li", {}, button), button, bar, figure, mark });
    }
    const list = this.#node(node).list;
    const { item } = this.#pods.get(name);
    if (item.parentNode !== list) insert(list, item, name, (other) => other.firstChild.dataset.name);
    this.#drawBar(name);
  }

  #drawBar(name) {
    const known = this.#pods.get(name);
    const pod = this.#model.pods.get(name);
    if (!known || !pod) return;
    const own = this.#selection?.kind === "vpod" ? this.#selection.name : "";
    const only = this.#selection?.kind === "tenant" ? this.#selection.name : null;
    const parts = this.#model.segments(name, own);
    const bar = [];
    let used = 0;
    for (const { tenant, slots, reserved, own: mine } of parts) {
      used += slots;
      const classes = `${this.#palette.classes(tenant)}${mine ? " mine" : only !== null && only !== tenant ? " faded" : ""}`;
      if (slots > reserved) bar.push([classes, slots - reserved]);
      if (reserved > 0) bar.push([`${classes} reserved`, reserved]);
    }
    const leaving = Math.max(0, pod.slots - pod.used - Math.max(0, pod.free));
    if (leaving > 0) bar.push(["leaving", leaving]);
    if (pod.free > 0) bar.push(["free", pod.free]);
    drawSegments(known.bar, bar);
    const slots = String(Math.max(pod.slots, used));
    if (known.bar.style.getPropertyValue("--slots") !== slots) known.bar.style.setProperty("--slots", slots);
    known.bar.classList.toggle("lines", slots > 1 && slots <= LINES_SLOTS);
    const state = stateOf(pod);
    known.button.classList.toggle("closed-to-work", Boolean(state));
    known.button.classList.toggle("over", used > pod.slots);
    setText(known.figure, `${used}/${pod.slots}`);
    this.#drawMark(known.mark, name, own, state);
    setAttribute(known.button, "aria-label", describe(name, pod, used, parts, state, known.mark.textContent));
    setAttribute(known.button, "title", `${name}: ${used} of ${pod.slots} slots used${state ? `, ${state}` : ""}`);
  }

  #drawMark(mark, name, own, state) {
    const delta = this.#deltas.get(name) ?? 0;
    const here = own ? (this.#model.podsOf.get(own)?.get(name)?.vreplicas ?? 0) : 0;
    const text = delta ? `${delta > 0 ? "+" : "\u2212"}${Math.abs(delta)}` : here ? `\u00d7${here}` : state.startsWith("node ") ? "" : state;
    setAttribute(mark, "class", `mark${delta > 0 ? " more" : delta < 0 ? " fewer" : here ? " count" : ""}`);
    setText(mark, text);
  }

  // -- nodes and zones ------------------------------------------------------------------------------------------------

  #node(name) {
    let node = this.#nodes.get(name);
    if (!node) {
      const list = el("ul", { class: "pods" });
      const title = el("button", { type: "button", tabindex: "-1", "data-kind": "node", "data-name": name, title: name }, name || "no node");
      title.disabled = name === NOWHERE;
      const badge = el("span", { class: "badge" });
      const figure = el("span", { class: "figure" });
      node = { card: el("li", { class: "node", "data-name": name }, el("h3", {}, title, badge, figure), list), list, badge, figure };
      this.#nodes.set(name, node);
    }
    this.#placeNode(name);
    return node;
  }

  #placeNode(name) {
    const node = this.#nodes.get(name);
    const { zone = NOWHERE, ready = true, cordoned = false } = this.#model.nodes.get(name) ?? {};
    const state = name === NOWHERE ? "" : ready ? (cordoned ? "cordoned" : "") : "not ready";
    setText(node.badge, state);
    node.card.classList.toggle("trouble", Boolean(state));
    const { list } = this.#zone(name === NOWHERE ? NOWHERE : zone, name === NOWHERE);
    if (node.card.parentNode !== list) insert(list, node.card, name, (other) => other.dataset.name);
  }

  #zone(name, nowhere) {
    const key = nowhere ? NOWHERE : `zone ${name}`;
    let zone = this.#zones.get(key);
    if (!zone) {
      const list = el("ul", { class: "nodes" });
      const figure = el("span", { class: "figure" });
      const title = nowhere
        ? el("span", {}, "Waiting for a node")
        : el("button", { type: "button", tabindex: "-1", "data-kind": "zone", "data-name": name }, name || "no zone");
      zone = { box: el("section", { class: nowhere ? "zone nowhere" : "zone", "data-key": key }, el("h2", {}, title, figure), list), list, figure };
      this.#zones.set(key, zone);
      insert(this.#root, zone.box, key, (other) => other.dataset.key);
    }
    return zone;
  }

  #drop() {
    for (const [known, box] of [[this.#nodes, "card"], [this.#zones, "box"]]) {
      for (const [key, it] of known) {
        if (it.list.firstChild) continue;
        it[box].remove();
        known.delete(key);
      }
    }
  }

  #count() {
    const sums = new Map();
    const add = (it, pod) => {
      const sum = sums.get(it) ?? { pods: 0, used: 0, slots: 0 };
      sums.set(it, { pods: sum.pods + 1, used: sum.used + pod.used, slots: sum.slots + pod.slots });
    };
    for (const pod of this.#model.pods.values()) {
      const { zone = NOWHERE } = this.#model.nodes.get(pod.node) ?? {};
      add(this.#nodes.get(pod.node), pod);
      add(this.#zones.get(pod.node === NOWHERE ? NOWHERE : `zone ${zone}`), pod);
    }
    for (const [it, { pods, used, slots }] of sums) {
      if (!it) continue;
      setText(it.figure, it.card ? `${used}/${slots}` : `${count(pods, "pod")}, ${used.toLocaleString("en")} of ${count(slots, "slot")} used (${percent(used, slots)})`);
    }
  }

  // -- keys -----------------------------------------------------------------------------------------------------------

  #rove(target) {
    const button = target.closest("button[data-kind]");
    if (!button) return;
    for (const other of this.#root.querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
    button.setAttribute("tabindex", "0");
  }

  #move(event) {
    const buttons = [...this.#root.querySelectorAll("button[data-kind]:not(:disabled)")];
    const at = buttons.indexOf(document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const goTo = {
      ArrowDown: () => at + 1,
      ArrowUp: () => at - 1,
      ArrowRight: () => nextOf(buttons, at, 1, "node"),
      ArrowLeft: () => nextOf(buttons, at, -1, "node"),
      PageDown: () => nextOf(buttons, at, 1, "zone"),
      PageUp: () => nextOf(buttons, at, -1, "zone"),
      Home: () => 0,
      End: () => buttons.length - 1,
    }[event.key];
    if (!goTo) return;
    event.preventDefault();
    buttons[goTo()]?.focus();
  }

  /** Put the focus on what is selected, or back on the map. */
  focus() {
    (this.#root.querySelector("button[aria-current]") ?? this.#root.querySelector('[tabindex="0"]'))?.focus();
  }
}

/** Make a bar's parts these, [[classes, slots]], changing what is there as little as can be. */
function drawSegments(bar, parts) {
  while (bar.children.length > parts.length) bar.lastElementChild.remove();
  parts.forEach(([classes, slots], index) => {
    const part = bar.children[index] ?? bar.appendChild(el("i"));
    setAttribute(part, "class", classes);
    if (part.style.flexGrow !== String(slots)) part.style.flexGrow = String(slots);
  });
}

/** Why a pod takes no new work, in a few words; "" if it does. */
export function stateOf({ why, closed }) {
  return why || (closed ? "closed, to scale down" : "");
}

function describe(name, pod, used, parts, state, mark) {
  const tenants = parts.map(({ tenant, slots }) => `${tenant} ${slots}`).join(", ");
  const where = pod.node ? `on ${pod.node}` : "on no node";
  return [`${name} ${where}`, `${used} of ${pod.slots} slots used`, tenants, state, mark === state ? "" : mark].filter(Boolean).join("; ");
}

/** The next heading of a sort in one direction, or where one is. */
function nextOf(buttons, at, step, kind) {
  let to = at + step;
  while (to >= 0 && to < buttons.length && buttons[to].dataset.kind !== kind) to += step;
  return to >= 0 && to < buttons.length ? to : at;
}

/** Put an element into a list that is in order of its keys; mostly it comes last. */
function insert(list, element, key, keyOf) {
  let after = list.lastElementChild;
  while (after && after !== element && byName(keyOf(after), key) > 0) after = after.previousElementSibling;
  if (after === null) list.prepend(element);
  else if (after !== element) after.after(element);
}
