// The side: what needs attention, or what is selected, where it is, what its loss would cost, and why it is so.

import { explain, explanation } from "./answers.js";
import { count, el, percent, table } from "./dom.js";
import { stateOf } from "./map.js";
import { byName, dimensionsOf, placement } from "./model.js";
import { barKeys, notTold, ofOne, quotaBar, sharing } from "./tenants.js";

const LISTED = 30;
const QUOTA = "QuotaExceeded"; // a vpod that waits for it says so first
const NAMED = 5; // of a group of vpods or pods with the same trouble: the table has all

export class Details {
  #root;
  #model;
  #palette;
  #acts;
  #shown = "";
  #answer = { key: "", elements: [] };

  /** `acts`: {select(kind, name), row(tenant), clear(), whatIf(target, "drain" or "fail"), pool(), loaded(), follow(pool)}. */
  constructor(root, model, palette, acts) {
    this.#root = root;
    this.#model = model;
    this.#palette = palette;
    this.#acts = acts;
  }

  /** Show a selection, or what needs attention. */
  draw(selection) {
    const shown = selection ? "" : JSON.stringify([this.#acts.loaded(), this.#model.waiting(), this.#model.unserved(), this.#model.unschedulable(), [...this.#model.slotsByTenant()], this.#sharing(), this.#poolFigures()]);
    if (shown && shown === this.#shown && this.#root.firstChild) return;
    this.#shown = shown;
    const open = new Set([...this.#root.querySelectorAll("details[open] > summary")].map((it) => it.textContent.replace(/[0-9]/g, "")));
    const focused = this.#root.contains(document.activeElement) ? document.activeElement : null;
    this.#root.replaceChildren(...this.#parts(selection));
    for (const summary of this.#root.querySelectorAll("details > summary")) summary.parentNode.open = open.has(summary.textContent.replace(/[0-9]/g, ""));
    if (focused) [...this.#root.querySelectorAll("button, summary, h2")].find((it) => it.textContent === focused.textContent)?.focus({ preventScroll: true });
  }

  #parts(selection) {
    if (!this.#acts.loaded()) return [el("p", { class: "quiet" }, "Loading\u2026")];
    return selection ? this.#selected(selection) : this.#attention();
  }

  /** All that is told of how tenants share the pool. */
  #sharing() {
    const { sharing, tenants, namespaces } = this.#model;
    return sharing && [sharing, [...tenants], [...namespaces]];
  }

  #poolFigures() {
    const pool = this.#model.pools.get(this.#acts.pool());
    const first = [this.#model.pools.size, this.#model.pods.size > 0, this.#model.vpods.size > 0, pool?.pendingVReplicas];
    if (this.#model.pools.size <= 1) return first;
    return [first, ...[...this.#model.pools].map(([key, pool]) => [key, pool.usedSlots, pool.slots, pool.pendingVReplicas])];
  }

  // -- nothing selected -------------------------------------------------------------------------------------------------

  #attention() {
    const waiting = this.#model.waiting();
    const shut = this.#model.unschedulable();
    const over = [...this.#model.pods].filter(([, pod]) => pod.used > pod.slots && pod.node).map(([name]) => name);
    const unserved = this.#model.unserved();
    const parts = [el("h2", {}, "Attention")];
    const pool = this.#model.pools.get(this.#acts.pool());
    if (this.#model.pools.size === 0) return [el("h2", {}, "Nothing to see yet"), el("p", {}, "There is no AdapterPool in this cluster. When one is made, its pods, vpods and tenants are shown here.")];
    if (!pool) parts.push(el("p", { class: "bad" }, "This pool is not known here: nothing can be said of it."));
    else if (this.#model.pods.size === 0 || this.#model.vpods.size === 0) parts.push(el("p", {}, emptiness(this.#model)));
    else if (waiting.length + shut.length + over.length + unserved.length + pool.pendingVReplicas === 0) parts.push(el("p", { class: "good" }, "Nothing waits, every pod takes work."));
    for (const [why, pods] of unserved) parts.push(el("h3", { class: "bad" }, `Nobody serves what is on ${count(pods.length, "pod")}: ${why}`), this.#links("pod", pods, NAMED));
    if (over.length > 0) parts.push(el("h3", { class: "bad" }, `Overcommitted (${over.length})`), this.#links("pod", over));
    if (waiting.length > 0) {
      const line = ({ why, vpods, missing }) =>
        el("li", {}, `${count(vpods.length, "vpod")}, ${count(missing, "vreplica")}`, el("span", { class: "quiet block" }, why), this.#links("vpod", vpods, NAMED), this.#tenantsThatWait(why, vpods));
      parts.push(el("h3", { class: "bad" }, `vpods that wait (${waiting.length.toLocaleString("en")})`), listed(this.#model.waitingByReason(), line, "reasons"));
    }
    for (const [reason, pods] of shut) parts.push(el("h3", {}, `${count(pods.length, "pod")}: ${reason}`), this.#links("pod", pods, NAMED));
    if (this.#model.pools.size > 1) parts.push(el("h2", {}, `Pools (${this.#model.pools.size})`), this.#pools());
    if (!pool) return parts;
    parts.push(...(this.#model.sharing ? this.#tenantsThatShare() : this.#tenants()));
    return parts;
  }

  #tenants() {
    const tenants = [...this.#model.slotsByTenant()].sort(([a, m], [b, n]) => n - m || byName(a, b));
    const line = ([tenant, slots]) => el("li", {}, this.#swatch(tenant), this.#link("tenant", tenant), el("span", { class: "figure" }, count(slots, "slot")));
    return [el("h2", {}, `Tenants (${tenants.length})`), listed(tenants, line, "tenants")];
  }

  /** Those that wait for most, each with its bar: the table has their figures. */
  #tenantsThatShare() {
    const { sharing: all } = this.#model;
    const line = ([tenant, row]) =>
      el(
        "li",
        {},
        el("span", { class: "line-of-tenant" }, this.#swatch(tenant), this.#link("tenant", tenant), el("span", { class: "figure" }, usedAndWaiting(row))),
        quotaBar(row, this.#slots()),
      );
    const rows = this.#model.tenantRows();
    return [
      el("h2", {}, `Tenants (${all.tenants.toLocaleString("en")})`),
      ...sharing(this.#model, (kind, name) => this.#link(kind, name)),
      rows.length > 0 && barKeys(),
      listed(rows, line, "shares", LISTED, all.tenants),
      rows.length > 0 && el("p", {}, el("button", { type: "button", onclick: () => this.#acts.row("") }, "All figures")),
    ].filter(Boolean);
  }

  /** Whose quota vpods wait for. */
  #tenantsThatWait(why, vpods) {
    if (!this.#model.sharing || !why.startsWith(QUOTA)) return null;
    const tenants = [...new Set(vpods.map((key) => this.#model.tenantOf(key)))].sort(byName);
    return el("div", { class: "of-tenants" }, tenants.length === 1 ? "of tenant" : "of tenants", this.#links("tenant", tenants, NAMED));
  }

  /** The slots of the pool. */
  #slots() {
    return this.#model.pools.get(this.#acts.pool())?.slots ?? 0;
  }

  #pools() {
    const line = ([key, { usedSlots, slots, pendingVReplicas }]) =>
      el(
        "li",
        {},
        el("button", { type: "button", class: "link", "aria-current": key === this.#acts.pool() && "true", onclick: () => this.#acts.follow(key) }, key),
        pendingVReplicas > 0 && el("span", { class: "bad" }, `${pendingVReplicas} wait`),
        el("span", { class: "figure" }, `${usedSlots}/${slots}`),
      );
    return listed([...this.#model.pools].sort(([a], [b]) => byName(a, b)), line, "tenants");
  }

  // -- something selected -------------------------------------------------------------------------------------------------

  #selected({ kind, name }) {
    const title = el("h2", { id: "selected", tabindex: "-1" }, el("span", { class: "quiet" }, kind), " ", kind === "vpod" || kind === "tenant" ? this.#swatch(kind === "vpod" ? this.#model.tenantOf(name) : name) : "", name);
    const close = el("button", { type: "button", class: "close", "aria-label": "Close the details", onclick: () => this.#acts.clear() }, "\u00d7");
    const body = { vpod: () => this.#vpod(name), pod: () => this.#pod(name), tenant: () => this.#tenant(name) }[kind] ?? (() => this.#place(kind, name));
    return [el("div", { class: "title" }, title, close), ...body().filter(Boolean)];
  }

  #vpod(key) {
    const vpod = this.#model.vpods.get(key);
    const spread = this.#model.spread(key);
    if (!vpod && spread.total === 0) return [el("p", {}, "There is no such vpod in this pool.")];
    const wanted = vpod?.wanted ?? spread.total;
    const weight = vpod && vpod.weight !== 1 ? `, ${vpod.weight} slots each` : "";
    const head = vpod ? `${spread.total} of ${wanted} vreplicas are placed${weight}, ${vpod.published} published.` : "The vpod is gone; this is what is still kept for it.";
    return [el("p", {}, head), vpod?.waits && el("p", { class: "bad" }, vpod.waits), ...this.#quotaOf(key, vpod), ...this.#zones(spread), this.#podsOf(spread), ...this.#explained("vpod", key, `${wanted} ${spread.total} ${vpod?.published} ${this.#handedOver(spread)}`)];
  }

  /** What the adapters of a vpod's pods have still to do: it is explained anew when that changes. */
  #handedOver({ pods }) {
    return pods.map(([pod]) => this.#model.pods.get(pod)?.handOver ?? "").join();
  }

  /** The tenant of a vpod; if it waits for quota, with what its tenant has. */
  #quotaOf(key, vpod) {
    if (!this.#model.sharing) return [];
    const tenant = this.#model.tenantOf(key);
    const line = el("p", {}, "Its tenant is ", this.#link("tenant", tenant), ".");
    return vpod?.waits.startsWith(QUOTA) ? [line, ...this.#share(tenant)] : [line];
  }

  /** What a tenant may have and has of the pool, and the way to its row of the table. */
  #share(tenant) {
    const row = this.#model.tenants.get(tenant);
    if (!row) return [el("p", { class: "quiet" }, `Its figures are not here: ${count(notTold(this.#model), "tenant")} of those that wait for least are left out.`)];
    return [
      el("p", {}, ofOne(row)),
      quotaBar(row, this.#slots()),
      barKeys(),
      el("p", {}, el("button", { type: "button", onclick: () => this.#acts.row(tenant) }, "Its row among all tenants")),
    ];
  }

  #zones({ total, zones, nodes, pods }) {
    if (total === 0) return [];
    const worst = zones[0];
    const rows = zones.map(([zone, here]) => [zone ? this.#link("zone", zone) : "no node", here, `${here} of ${total} (${percent(here, total)})`]);
    const survives = zones.length > 1 ? `Losing ${worst[0] || "one zone"} would take ${worst[1]} of ${total}.` : "All of it stands in one zone: losing that takes everything.";
    return [
      el("h3", {}, `Spread: ${count(zones.length, "zone")}, ${count(nodes.length, "node")}, ${count(pods.length, "pod")}`),
      el("p", { class: zones.length > 1 ? "" : "bad" }, survives),
      table("By zone", ["Zone", "vreplicas", "Its loss takes"], rows),
    ];
  }

  #podsOf({ pods }) {
    const line = ([pod, here]) => el("li", {}, this.#link("pod", pod), el("span", { class: "quiet" }, ` ${this.#model.pods.get(pod)?.node ?? ""}`), el("span", { class: "figure" }, `\u00d7${here}`));
    return pods.length > 0 && el("details", {}, el("summary", {}, `Pods (${pods.length})`), listed(pods, line, "tenants"));
  }

  #pod(name) {
    const pod = this.#model.pods.get(name);
    if (!pod) return [el("p", {}, "There is no such pod in this pool.")];
    const state = stateOf(pod);
    const reserved = Object.values(pod.placements).reduce((sum, value) => sum + placement(value).slots - placement(value).written, 0);
    const line = ([key, value]) => el("li", {}, this.#swatch(this.#model.tenantOf(key)), this.#link("vpod", key), el("span", { class: "figure" }, `\u00d7${placement(value).vreplicas}`));
    return [
      el("p", {}, pod.node ? ["On ", this.#link("node", pod.node), pod.zone ? " in " : "", pod.zone ? this.#link("zone", pod.zone) : ""] : "It stands on no node."),
      el("p", {}, `${pod.used} of ${count(pod.slots, "slot")} used, ${Math.max(0, pod.free)} free${reserved ? `, ${reserved} of the used ones reserved` : ""}.`),
      pod.dimensions && el("p", {}, `${dimensionsOf(pod.dimensions)}.`),
      pod.load && el("p", {}, `Load: ${pod.load.load.toLocaleString("en")} ${pod.load.metric}, ${pod.load.toMean.toLocaleString("en")} times the pods' mean.`),
      state && el("p", { class: "bad" }, `Takes no new work: ${state}.`),
      pod.handOver && el("p", {}, `Its adapter: ${pod.handOver}.`),
      ...this.#loss("pod", name),
      el("h3", {}, `vpods (${Object.keys(pod.placements).length})`),
      listed(Object.entries(pod.placements).sort(([a], [b]) => byName(a, b)), line, "tenants"),
      ...this.#explained("pod", name, `${pod.node} ${state} ${pod.used} ${pod.handOver ?? ""}`),
    ];
  }

  #tenant(name) {
    const vpods = [...this.#model.vpods.keys()].filter((key) => this.#model.tenantOf(key) === name).sort(byName);
    const slots = this.#model.slotsByTenant().get(name) ?? 0;
    const shares = this.#model.sharing && vpods.length > 0;
    return [
      el("p", {}, `${count(vpods.length, "vpod")}, ${count(slots, "slot")} on ${count(this.#model.podsIn("tenant", name).length, "pod")}.`),
      ...(shares ? [...this.#share(name), ...sharing(this.#model, (kind, other) => this.#link(kind, other))] : []),
      this.#links("vpod", vpods),
    ];
  }

  #place(kind, name) {
    const pods = this.#model.podsIn(kind, name).sort(byName);
    const node = kind === "node" ? this.#model.nodes.get(name) : null;
    const state = node && (!node.ready ? "not ready" : node.cordoned ? "cordoned" : "");
    const sum = (field) => pods.reduce((all, pod) => all + this.#model.pods.get(pod)[field], 0);
    return [
      el("p", {}, node ? ["In ", this.#link("zone", node.zone), ". "] : "", `${count(pods.length, "pod")}, ${sum("used")} of ${count(sum("slots"), "slot")} used.`),
      state && el("p", { class: "bad" }, `The node is ${state}: its pods take no new work.`),
      ...this.#loss(kind, name),
      el("details", {}, el("summary", {}, `Pods (${pods.length})`), this.#links("pod", pods)),
    ];
  }

  #loss(kind, name) {
    const { vreplicas, vpods, gone } = this.#model.loss(this.#model.podsIn(kind, name));
    const line = ([key, lost, of]) => el("li", {}, this.#link("vpod", key), el("span", { class: "figure" }, `${lost} of ${of}`));
    return [
      el("h3", {}, "Its loss would cost"),
      el("p", {}, `${count(vreplicas, "vreplica")} of ${count(vpods.length, "vpod")}; ${gone ? `${count(gone, "vpod")} would have nothing left.` : "every one of them keeps some elsewhere."}`),
      kind !== "pod" && vpods.length > 0 && el("details", {}, el("summary", {}, "Who would lose most"), listed(vpods, line, "tenants")),
      el(
        "p",
        { class: "pair" },
        el("button", { type: "button", onclick: () => this.#acts.whatIf(`${kind}/${name}`, "drain") }, `What if this ${kind} is drained?`),
        el("button", { type: "button", onclick: () => this.#acts.whatIf(`${kind}/${name}`, "fail") }, "\u2026 is lost?"),
      ),
    ];
  }

  // -- why ------------------------------------------------------------------------------------------------------------

  /** The explanation, asked for again when what it is about has changed. */
  #explained(kind, name, about) {
    const key = `${kind} ${name} ${about}`;
    const box = el("section", { class: "explanation" });
    if (this.#answer.key === key) {
      box.append(el("h3", {}, "Why"), ...this.#answer.elements);
      return [box];
    }
    this.#answer = { key, elements: [el("p", { class: "quiet" }, "asking\u2026")] };
    box.append(el("h3", {}, "Why"), ...this.#answer.elements);
    explain(kind, name, this.#acts.pool(), () => this.#answer.key === key).then(({ value, problem }) => {
      if (this.#answer.key !== key) return;
      this.#answer.elements = problem ? [el("p", { class: "quiet" }, problem)] : explanation(value);
      this.#root.querySelector(".explanation")?.replaceChildren(el("h3", {}, "Why"), ...this.#answer.elements);
    });
    return [box];
  }

  // -- pieces -----------------------------------------------------------------------------------------------------------

  #link(kind, name) {
    return el("button", { type: "button", class: "link", onclick: () => this.#acts.select(kind, name) }, name || "(none)");
  }

  #links(kind, names, most = LISTED) {
    return listed(names, (name) => el("li", {}, this.#link(kind, name)), "names", most);
  }

  #swatch(tenant) {
    return el("i", { class: `swatch ${this.#palette.classes(tenant)}` });
  }
}

function usedAndWaiting({ usedSlots, waitingSlots }) {
  const waits = waitingSlots > 0 ? `, ${waitingSlots.toLocaleString("en")} wait` : "";
  return `${count(usedSlots, "slot")}${waits}`;
}

/** What a pool without pods or without vpods has not. */
function emptiness({ pods, vpods }) {
  if (pods.size > 0) return "No vpod uses this pool yet.";
  return vpods.size > 0 ? "This pool has no pods yet." : "This pool has no pods and no vpods yet.";
}

/** A list of the first `most` items. `all`: how many there are, where not all are told. */
function listed(items, line, classes = "", most = LISTED, all = items.length) {
  const rest = all - Math.min(items.length, most);
  return el("ul", { class: classes }, items.slice(0, most).map(line), rest > 0 && el("li", { class: "quiet" }, `and ${rest.toLocaleString("en")} more`));
}
