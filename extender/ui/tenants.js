// The tenants of a pool that they share (spec.tenancy): what each may have and has, who has borrowed most, and who waits.

import { count, el, table } from "./dom.js";

const WAITING_NAMED = 3;
const number = (value) => value.toLocaleString("en");
const orNone = (value) => value ?? "none";

/**
 * A bar of what a tenant uses, against its guarantee and its limit. Its end is the most of these. A limit that is more than the
 * pool's `slots` holds nobody back, and is not drawn.
 */
export function quotaBar(row, slots) {
  const { guarantee, limit, share, usedSlots: used, borrowedSlots: borrowed } = row;
  const end = Math.max(1, used, guarantee, share ?? 0, limit !== null && limit <= slots ? limit : 0);
  const parts = [["kept", used - borrowed], ["borrowed", borrowed], ["owed", Math.max(0, guarantee - used)]];
  parts.push(["free", end - parts.reduce((sum, [, size]) => sum + size, 0)]);
  const bar = el("span", { class: "bar quota", role: "img", "aria-label": inWords(row), title: inWords(row) });
  for (const [name, size] of parts.filter(([, size]) => size > 0)) {
    const part = el("i", { class: name });
    part.style.flexGrow = String(size);
    bar.append(part);
  }
  if (limit !== null && limit <= end) {
    const mark = el("b", {});
    mark.style.left = `${(100 * limit) / end}%`;
    bar.append(mark);
  }
  return bar;
}

function inWords({ guarantee, limit, usedSlots, borrowedSlots }) {
  const most = limit === null ? "no limit" : `a limit of ${number(limit)}`;
  return `${count(usedSlots, "slot")} used, ${number(borrowedSlots)} borrowed; a guarantee of ${number(guarantee)}, ${most}`;
}

/** What the bars' parts mean. */
export function barKeys() {
  const key = (name, text) => el("span", { class: "key" }, el("i", { class: `quota-key ${name}` }), text);
  return el("p", { class: "legend" }, key("kept", "used within the guarantee"), key("borrowed", "borrowed"), key("owed", "guaranteed, not used"), key("limit", "limit"));
}

/** Who has borrowed most, and who waits. `link(kind, name)` makes a button. */
export function sharing(model, link) {
  const { tenants, waitingTenants, waitingSlots, borrowers } = model.sharing;
  if (tenants === 0) return [el("p", {}, "No tenant uses this pool yet.")];
  const slotsOf = ({ tenant, borrowedSlots }, index) => [index > 0 && ", ", link("tenant", tenant), ` ${index > 0 ? number(borrowedSlots) : count(borrowedSlots, "slot")}`];
  const borrowed = borrowers.length > 0 ? ["Borrowed most: ", borrowers.map(slotsOf).flat(), "."] : "Nobody has borrowed slots.";
  const first = model.tenantRows().filter(([, { waitingSlots: waits }]) => waits > 0).slice(0, WAITING_NAMED);
  const waits = ([tenant, row], index) => [index > 0 && ", ", link("tenant", tenant), ` for ${number(row.waitingSlots)}`];
  const rest = waitingTenants - first.length;
  const waiting = [`${number(waitingTenants)} of ${count(tenants, "tenant")} ${waitingTenants === 1 ? "waits" : "wait"} for ${count(waitingSlots, "slot")}: `, first.map(waits).flat(), rest > 0 && `, and ${number(rest)} more`, "."];
  return [el("p", {}, borrowed), waitingTenants > 0 ? el("p", { class: "bad" }, waiting) : el("p", { class: "good" }, "No tenant waits.")];
}

/** The same of one tenant, as sentences. */
export function ofOne({ guarantee, limit, share, usedSlots, borrowedSlots, waitingSlots }) {
  const fair = share === null ? "" : `, a fair share of ${number(share)}`;
  const most = limit === null ? "no limit" : `a limit of ${number(limit)}`;
  const waits = waitingSlots > 0 ? ` It waits for ${number(waitingSlots)} more.` : "";
  return `It uses ${count(usedSlots, "slot")}, ${number(borrowedSlots)} of them borrowed, and has a guarantee of ${number(guarantee)}, ${most}${fair}.${waits}`;
}

/** All that are told of, as a table. Its order is that of the list, which has those that wait for most: so it cannot be sorted. */
export function tenantTable(model, link, slots) {
  const rows = model.tenantRows().map(([name, row]) => [
    link("tenant", name),
    quotaBar(row, slots),
    row.vpods,
    row.guarantee,
    orNone(row.limit),
    orNone(row.share),
    row.usedSlots,
    row.borrowedSlots,
    row.waitingSlots,
  ]);
  const heads = ["Tenant", "Used, of guarantee and limit", "vpods", "Guarantee", "Limit", "Fair share", "Used", "Borrowed", "Waiting"];
  const all = model.sharing.tenants;
  return [table(`Tenants (${number(all)}), in slots; those that wait for most come first`, heads, rows), rows.length > 0 && barKeys()];
}

/** How many tenants are not told of. */
export const notTold = (model) => (model.sharing ? Math.max(0, model.sharing.tenants - model.tenants.size) : 0);
