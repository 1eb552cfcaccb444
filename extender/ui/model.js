// What the stream has told, and what follows from it. Nothing here touches the document.

const SECTIONS = ["service", "pools", "pods", "vpods", "nodes", "history", "notListed", "tenancy", "tenants", "namespaces"];
const collator = new Intl.Collator("en", { numeric: true });

/** Order of names: numbers in them as numbers. */
export const byName = (a, b) => collator.compare(a, b);

/** The namespace of a vpod's key. */
const namespaceOf = (vpod) => vpod.slice(0, Math.max(0, vpod.indexOf("/")));

/** A pod's placement as {vreplicas, slots, written}; see the records' documentation. */
export function placement(value) {
  return typeof value === "number"
    ? { vreplicas: value, slots: value, written: value }
    : { vreplicas: value[0], slots: value[1], written: value[2] };
}

/** `{cpu: {capacity, used}, ...}` of a pod, as part of a sentence. */
export function dimensionsOf(dimensions) {
  return Object.entries(dimensions).map(([name, { capacity, used }]) => `${used.toLocaleString("en")} of ${capacity.toLocaleString("en")} ${name} used`).join(", ");
}

export class Model {
  constructor() {
    for (const name of SECTIONS) this[name] = new Map();
    this.podsOf = new Map(); // vpod key -> Map(pod name -> placement)
    this.tenantSlots = null;
  }

  /** Take a snapshot: all that is not in it is gone. What has changed, as `news` tells it. */
  snapshot(data) {
    const whole = {};
    for (const name of SECTIONS) {
      whole[name] = Object.assign(Object.create(null), data[name]); // a name may be __proto__
      for (const key of this[name].keys()) if (!(key in whole[name])) whole[name][key] = null;
    }
    return this.news(whole);
  }

  /** Forget what is known of one pool: its pods, vpods, nodes and history. What has changed, as `news` tells it. */
  forgetPool() {
    return this.snapshot({ service: Object.fromEntries(this.service), pools: Object.fromEntries(this.pools) });
  }

  /** Take news: records by section and key, null for one that is gone. The keys that they were about, by section. */
  news(data) {
    const changed = {};
    this.tenantSlots = null;
    for (const name of SECTIONS) {
      const records = Object.entries(data[name] ?? {});
      changed[name] = new Set(records.map(([key]) => key));
      for (const [key, record] of records) {
        if (name === "pods") this.#place(key, record);
        if (record === null) this[name].delete(key);
        else this[name].set(key, record);
      }
    }
    return changed;
  }

  #place(pod, record) {
    for (const vpod of Object.keys(this.pods.get(pod)?.placements ?? {})) {
      const on = this.podsOf.get(vpod);
      on?.delete(pod);
      if (on?.size === 0) this.podsOf.delete(vpod);
    }
    for (const [vpod, value] of Object.entries(record?.placements ?? {})) {
      if (!this.podsOf.has(vpod)) this.podsOf.set(vpod, new Map());
      this.podsOf.get(vpod).set(pod, placement(value));
    }
  }

  /** Facts about this replica. */
  get replica() {
    return this.service.get("") ?? {};
  }

  /** The tenant of a vpod's key: its namespace, if the pool that tenants share does not say otherwise. */
  tenantOf(vpod) {
    const namespace = namespaceOf(vpod);
    return this.namespaces.get(namespace) ?? namespace;
  }

  /** What is told of all tenants of a pool that they share; undefined if they do not. */
  get sharing() {
    return this.tenancy.get("");
  }

  /** Tenants of a pool that they share, [[name, record]]: those that wait for most first, as they are told. */
  tenantRows() {
    return [...this.tenants].sort(([a, m], [b, n]) => n.waitingSlots - m.waitingSlots || n.usedSlots - m.usedSlots || byName(a, b));
  }

  /** Tenant -> slots, for all that are placed here or wait. */
  slotsByTenant() {
    this.tenantSlots ??= this.#addTenants();
    return this.tenantSlots;
  }

  #addTenants() {
    const found = new Map();
    for (const tenant of this.tenants.keys()) found.set(tenant, 0);
    for (const vpod of this.vpods.keys()) found.set(this.tenantOf(vpod), 0);
    for (const [vpod, on] of this.podsOf) {
      const tenant = this.tenantOf(vpod);
      let slots = found.get(tenant) ?? 0;
      for (const { slots: taken } of on.values()) slots += taken;
      found.set(tenant, slots);
    }
    return found;
  }

  /** A pod's slots from left to right: [{tenant, slots, reserved, vpod}], tenants by name, `first` (a vpod) before all. */
  segments(name, first = "") {
    const parts = new Map();
    for (const [vpod, value] of Object.entries(this.pods.get(name)?.placements ?? {})) {
      const { slots, written } = placement(value);
      const own = vpod === first;
      const key = own ? "" : this.tenantOf(vpod);
      const part = parts.get(key) ?? { tenant: this.tenantOf(vpod), slots: 0, reserved: 0, own };
      part.slots += slots;
      part.reserved += slots - written;
      parts.set(key, part);
    }
    return [...parts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, part]) => part);
  }

  /** Where a vpod's vreplicas are: {total, pods, nodes, zones}, the latter three as [[name, vreplicas]], most first. */
  spread(vpod) {
    const sums = { pods: new Map(), nodes: new Map(), zones: new Map() };
    let total = 0;
    for (const [pod, { vreplicas }] of this.podsOf.get(vpod) ?? []) {
      const { node = "", zone = "" } = this.pods.get(pod) ?? {};
      total += vreplicas;
      for (const [sum, key] of [[sums.pods, pod], [sums.nodes, node], [sums.zones, zone]]) sum.set(key, (sum.get(key) ?? 0) + vreplicas);
    }
    const listed = (sum) => [...sum].sort(([a, m], [b, n]) => n - m || byName(a, b));
    return { total, pods: listed(sums.pods), nodes: listed(sums.nodes), zones: listed(sums.zones) };
  }

  /** What the loss of these pods would cost: {vreplicas, vpods: [[key, lost, of]], gone: how many vpods have nothing else}. */
  loss(pods) {
    const lost = new Map();
    let vreplicas = 0;
    for (const pod of pods) {
      for (const [vpod, value] of Object.entries(this.pods.get(pod)?.placements ?? {})) {
        const { vreplicas: there } = placement(value);
        vreplicas += there;
        lost.set(vpod, (lost.get(vpod) ?? 0) + there);
      }
    }
    let gone = 0;
    const vpods = [...lost].map(([vpod, there]) => {
      let of = 0;
      for (const { vreplicas: all } of this.podsOf.get(vpod).values()) of += all;
      gone += there === of;
      return [vpod, there, of];
    });
    vpods.sort(([a, m, of], [b, n, all]) => n / all - m / of || n - m || byName(a, b));
    return { vreplicas, vpods, gone };
  }

  /** The pods of a node, a zone, a tenant, a vpod or a pod. */
  podsIn(kind, name) {
    if (kind === "pod") return this.pods.has(name) ? [name] : [];
    if (kind === "vpod") return [...(this.podsOf.get(name)?.keys() ?? [])];
    if (kind !== "tenant") return [...this.pods].filter(([, pod]) => pod[kind] === name).map(([pod]) => pod);
    const found = new Set();
    for (const [vpod, on] of this.podsOf) if (this.tenantOf(vpod) === name) for (const pod of on.keys()) found.add(pod);
    return [...found];
  }

  /** The pods that have vpods of these namespaces. */
  podsOfNamespaces(names) {
    const found = new Set();
    for (const [vpod, on] of this.podsOf) if (names.has(namespaceOf(vpod))) for (const pod of on.keys()) found.add(pod);
    return found;
  }

  /** Pods that take no new work, by reason: [[reason, [pod]]], most first. */
  unschedulable() {
    const found = new Map();
    for (const [name, { why, closed }] of this.pods) {
      const reason = why || (closed ? "closed, to scale down" : "");
      if (reason) found.set(reason, [...(found.get(reason) ?? []), name]);
    }
    return [...found].map(([reason, pods]) => [reason, pods.sort(byName)]).sort(([, a], [, b]) => b.length - a.length);
  }

  /** Pods that do not serve what is placed on them: [[why, names]], most first. */
  unserved() {
    const found = new Map();
    for (const [name, { unserved }] of this.pods) if (unserved) found.set(unserved, [...(found.get(unserved) ?? []), name]);
    return [...found].map(([why, pods]) => [why, pods.sort(byName)]).sort(([, a], [, b]) => b.length - a.length);
  }

  /** vpods of which some vreplicas wait, or that wait for their pool: [[key, how many, why]], by name. */
  waiting() {
    return [...this.vpods]
      .filter(([, { wanted, published, waits }]) => published < wanted || waits)
      .map(([key, { wanted, published, waits }]) => [key, Math.max(0, wanted - published), waits])
      .sort(([a], [b]) => byName(a, b));
  }

  /** vpods that wait, by what they wait for, numbers in it aside: [{why, vpods: [key], missing: vreplicas}], most first. */
  waitingByReason() {
    const found = new Map();
    for (const [key, missing, why] of this.waiting()) {
      const reason = why.replace(/[0-9]+/g, "#");
      const group = found.get(reason) ?? { why, vpods: [], missing: 0 };
      group.vpods.push(key);
      group.missing += missing;
      found.set(reason, group);
    }
    return [...found.values()].sort((a, b) => b.missing - a.missing);
  }

  /** What a text is found in: at most `most` of [kind, name], what begins with it first. */
  search(text, most) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    const names = {
      vpod: this.vpods.keys(),
      pod: this.pods.keys(),
      node: this.nodes.keys(),
      zone: new Set([...this.nodes.values()].map(({ zone }) => zone)),
      tenant: this.slotsByTenant().keys(),
      pool: this.pools.size > 1 ? this.pools.keys() : [],
    };
    const found = [];
    for (const [kind, keys] of Object.entries(names)) {
      for (const key of keys) {
        const at = key.toLowerCase().indexOf(wanted);
        if (at >= 0 && key) found.push([at === 0 || key[at - 1] === "/" ? 0 : 1, kind, key]);
      }
    }
    found.sort(([r, k, a], [s, l, b]) => r - s || Object.keys(names).indexOf(k) - Object.keys(names).indexOf(l) || byName(a, b));
    return found.slice(0, most).map(([, kind, key]) => [kind, key]);
  }
}
