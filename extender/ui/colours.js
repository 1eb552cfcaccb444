// Colours of tenants: from a palette that colour-blind people can tell apart (after Okabe and Ito), chosen by a hash of the name,
// so that a tenant has the same colour tomorrow. Where two want the same, the later one by name takes the next that is free;
// where all colours are taken they begin again with another pattern.

export const COLOURS = 8;
export const PATTERNS = 4;

/** FNV-1a, 32 bits. */
export function hash(text) {
  let value = 0x811c9dc5;
  for (const character of text) value = Math.imul(value ^ character.codePointAt(0), 0x01000193) >>> 0;
  return value;
}

export class Palette {
  #slots = new Map(); // tenant -> number below COLOURS * PATTERNS
  #taken = [];

  /** Give every tenant its place; those that have one keep it. */
  learn(tenants) {
    for (const tenant of [...tenants].sort()) if (!this.#slots.has(tenant)) this.#slots.set(tenant, this.#free(hash(tenant)));
  }

  #free(start) {
    const all = COLOURS * PATTERNS;
    const least = Math.min(...Array.from({ length: all }, (_, slot) => this.#taken[slot] ?? 0));
    for (let pattern = 0; pattern < PATTERNS; pattern += 1) {
      for (let step = 0; step < COLOURS; step += 1) {
        const slot = pattern * COLOURS + ((start + step) % COLOURS);
        if ((this.#taken[slot] ?? 0) === least) {
          this.#taken[slot] = least + 1;
          return slot;
        }
      }
    }
    return start % all;
  }

  /** CSS classes of a tenant: its colour and its pattern. */
  classes(tenant) {
    this.learn([tenant]);
    const slot = this.#slots.get(tenant);
    return `c${slot % COLOURS} p${Math.floor(slot / COLOURS)}`;
  }
}
