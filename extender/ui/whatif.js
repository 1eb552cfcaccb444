// What if: a form, the plan that the server makes of it, and what the plan would change, pod by pod. It changes nothing.

import { ask } from "./answers.js";
import { count, el, table } from "./dom.js";
import { byName } from "./model.js";
import { podsToCome } from "./newpods.js";

const LISTED = 50;
const TARGETS_MAX = 20;
const DONE = { drain: "drained", fail: "lost" };

export class WhatIf {
  #root;
  #model;
  #acts;
  #targets = [];
  #form = null;
  #result = el("div", { "aria-live": "polite" });
  #asked = 0;

  /** `acts`: {select(kind, name), show(pod name -> vreplicas more or fewer, pods to come), close(), pool()}. */
  constructor(root, model, acts) {
    this.#root = root;
    this.#model = model;
    this.#acts = acts;
  }

  get open() {
    return this.#form !== null;
  }

  /** Show the form, with something that is to go if any is named: `pod/x`, `node/y` or `zone/z`; `how`: drain or fail. */
  start(target, how = "drain") {
    if (target) this.#take(target, how);
    if (!this.open) this.#draw();
    this.#drawTargets();
    this.#root.querySelector("h2").focus({ preventScroll: true });
  }

  /** Leave: nothing of it stays. */
  stop() {
    this.#asked += 1;
    this.#targets = [];
    this.#form = null;
    this.#result.replaceChildren();
    this.#root.replaceChildren();
    this.#acts.show(new Map());
  }

  #draw() {
    const profiles = this.#model.replica.profiles ?? [];
    const input = (name, label, attributes) => el("label", { class: "line" }, el("span", {}, label), el("input", { name, ...attributes }));
    const number = { type: "number", min: "1", inputmode: "numeric", max: "100000" };
    const targets = ["zone", "node", "pod"].flatMap((kind) => this.#names(kind).map((name) => el("option", { value: `${kind}/${name}` })));
    this.#form = el(
      "form",
      { onsubmit: (event) => this.#submit(event) },
      el("label", { class: "line wide" }, el("span", {}, "What happens"), el("select", { name: "how" }, el("option", { value: "drain" }, "drained: emptied in peace"), el("option", { value: "fail" }, "lost: gone at once"))),
      el("div", { class: "line wide" }, el("label", { for: "target" }, "to a pod, node or zone"), el("span", { class: "pair" }, el("input", { id: "target", name: "target", list: "targets", placeholder: "node/NAME", autocomplete: "off", oninput: ({ target }) => target.setCustomValidity("") }), el("button", { type: "button", onclick: () => this.#add() }, "Add"))),
      el("datalist", { id: "targets" }, targets),
      el("ul", { class: "chips", id: "going", "aria-label": "To be drained or lost" }),
      input("slotsPerPod", "Slots per pod", { ...number, placeholder: String(this.#pool().slotsPerPod ?? "") }),
      input("minPods", "Pods at least", { ...number, min: "0", max: "10000", placeholder: "as it is" }),
      input("maxPods", "Pods at most", { ...number, min: "0", max: "10000", placeholder: "as it is" }),
      el("label", { class: "line" }, el("span", {}, "Profile"), el("select", { name: "profile" }, el("option", { value: "" }, `as it is (${this.#pool().profile ?? ""})`), profiles.map((name) => el("option", { value: name }, name)))),
      input("vpods", "More vpods", { ...number, max: "1000", placeholder: "0" }),
      input("vreplicas", "vreplicas of each", { ...number, value: "1" }),
      input("namespace", "Namespace of those", { placeholder: this.#tenant(), maxlength: "63", pattern: "[a-z0-9]([\\-a-z0-9]*[a-z0-9])?", title: "A namespace's name", autocomplete: "off" }),
      el("label", { class: "line check" }, el("input", { type: "checkbox", name: "autoscale", checked: true }), el("span", {}, "The pool may grow and shrink")),
      el("p", { class: "pair" }, el("button", { type: "submit", class: "main" }, "Show the plan"), el("button", { type: "button", onclick: () => this.#acts.close() }, "Leave what-if")),
    );
    this.#root.replaceChildren(el("h2", { tabindex: "-1" }, "What if\u2026"), el("p", { class: "quiet" }, "A plan is made and shown. Nothing is changed by it."), this.#form, this.#result);
  }

  /** Whose vpods the ones to come are like, where nothing is said. */
  #tenant() {
    return this.#model.vpods.keys().next().value?.split("/")[0] ?? "default";
  }

  #pool() {
    return this.#model.pools.get(this.#acts.pool()) ?? {};
  }

  #names(kind) {
    if (kind === "zone") return [...new Set([...this.#model.nodes.values()].map(({ zone }) => zone))].filter(Boolean).sort(byName);
    return [...(kind === "node" ? this.#model.nodes : this.#model.pods).keys()].sort(byName);
  }

  /** The last word on a target counts: it is drained or lost, not both. */
  #take(target, how) {
    const others = this.#targets.filter((it) => it.target !== target);
    if (others.length < TARGETS_MAX) this.#targets = [...others, { target, how }];
  }

  #add() {
    const { target: field, how } = this.#form.elements;
    const value = field.value.trim();
    const known = ["pod", "node", "zone"].flatMap((kind) => this.#names(kind).map((name) => `${kind}/${name}`));
    const meant = known.filter((target) => target === value || target.slice(target.indexOf("/") + 1) === value);
    const problem = meant.length > 1 ? `Say which: ${meant.join(" or ")}.` : "Name a pod, node or zone of this pool: pod/NAME, node/NAME or zone/NAME.";
    field.setCustomValidity(meant.length === 1 || !value ? "" : problem);
    if (!field.reportValidity() || !value) return false;
    this.#take(meant[0], how.value);
    field.value = "";
    this.#drawTargets();
    return true;
  }

  #drawTargets() {
    const chip = ({ target, how }) =>
      el("li", {}, `${target} ${DONE[how]}`, el("button", { type: "button", "aria-label": `Not ${target}`, onclick: () => this.#remove(target) }, "\u00d7"));
    this.#form.querySelector("#going").replaceChildren(...this.#targets.map(chip));
  }

  #remove(target) {
    this.#targets = this.#targets.filter((it) => it.target !== target);
    this.#drawTargets();
    this.#form.elements.target.focus();
  }

  /** The body of POST /v1/plan. */
  #question() {
    const fields = this.#form.elements;
    const question = { pool: this.#acts.pool(), autoscale: fields.autoscale.checked };
    for (const { target, how } of this.#targets) (question[how] ??= []).push(target);
    for (const name of ["slotsPerPod", "minPods", "maxPods"]) if (fields[name].value) (question.set ??= {})[name] = Number(fields[name].value);
    if (fields.profile.value) question.profile = fields.profile.value;
    const vreplicas = Number(fields.vreplicas.value || 1);
    const more = Number(fields.vpods.value || 0);
    if (more > 0) {
      const namespace = fields.namespace.value || this.#tenant();
      question.addVPods = Array.from({ length: more }, (_, index) => ({ namespace, name: `what-if-${index}`, vreplicas, slotsPerVReplica: 1 }));
    }
    return question;
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#form.elements.target.value && !this.#add()) return;
    const asked = (this.#asked += 1);
    this.#result.replaceChildren(el("p", { class: "quiet" }, "planning\u2026"));
    const question = this.#question();
    const { value, problem } = await ask("v1/plan", question);
    if (asked !== this.#asked) return;
    const toCome = value ? podsToCome(this.#model, this.#acts.pool(), question, value) : [];
    this.#acts.show(value ? deltas(value.vpods ?? []) : new Map(), toCome);
    this.#result.replaceChildren(...(problem ? [el("p", { class: "bad" }, problem)] : this.#plan(value, toCome)));
  }

  #plan({ summary = {}, notes = [], vpods = [] }, toCome) {
    const { moved = 0, unplacedBefore = 0, unplacedSettled = unplacedBefore, unplacedAfter = 0, podsBefore = 0, podsAfter = 0, overcommittedAfter = 0 } = summary;
    const rows = [
      ["vreplicas that move", "", moved],
      ["vreplicas that wait", unplacedBefore, unplacedAfter],
      ["pods", podsBefore, podsAfter],
      ["overcommitted pods", "", overcommittedAfter],
    ];
    const waiting = unplacedAfter - Math.min(unplacedBefore, unplacedSettled);
    const verdict = waiting > 0 ? el("p", { class: "bad" }, `${count(waiting, "vreplica")} more would have to wait.`) : el("p", { class: "good" }, "Everything that is placed now would have a place.");
    const line = ({ name, before = {}, settled = before, after = {}, unplaced = 0, reasons = [] }) =>
      el(
        "li",
        {},
        el("button", { type: "button", class: "link", onclick: () => this.#acts.select("vpod", name) }, name),
        el("span", { class: "block" }, changes(settled, after).map(([pod, delta]) => `${pod} ${delta > 0 ? "+" : "\u2212"}${Math.abs(delta)}`).join(", ")),
        unplaced ? el("span", { class: "bad block" }, `${unplaced} without a place ${reasons.join(", ")}`) : "",
      );
    const rest = vpods.length - LISTED;
    const onThose = toCome.reduce((sum, { vreplicas }) => sum + vreplicas, 0);
    return [
      el("h3", {}, "The plan"),
      verdict,
      ...notes.map((note) => el("p", { class: "quiet" }, note)),
      table("What it comes to", ["What", "Now", "Then"], rows),
      toCome.length > 0 && el("p", {}, `${count(toCome.length, "pod")} to come would take ${count(onThose, "vreplica")}. The map shows ${toCome.length === 1 ? "it" : "them"} first.`),
      vpods.length > 0 && el("h3", {}, `vpods that change (${vpods.length})`),
      el("ul", {}, vpods.slice(0, LISTED).map(line), rest > 0 && el("li", { class: "quiet" }, `and ${rest} more`)),
    ].filter(Boolean);
  }
}

const at = (counts, pod) => (Object.hasOwn(counts, pod) ? counts[pod] : 0);

/** [[pod, vreplicas more or fewer]], by name. */
export function changes(before, after) {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .map((pod) => [pod, at(after, pod) - at(before, pod)])
    .filter(([, delta]) => delta !== 0)
    .sort(([a], [b]) => byName(a, b));
}

/** Pod -> vreplicas more or fewer over all vpods of a plan. */
export function deltas(vpods) {
  const sums = new Map();
  for (const { before = {}, settled = before, after = {} } of vpods) for (const [pod, delta] of changes(settled, after)) sums.set(pod, (sums.get(pod) ?? 0) + delta);
  return sums;
}
