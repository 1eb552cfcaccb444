// The search: a combobox over all names that the page knows: those of the shown pool, and the pools. A vpod by its whole name
// may be looked for in the others, too, which is a question to the server.

import { el } from "./dom.js";

const FOUND = 20;
export const ELSEWHERE = "elsewhere";

export class Search {
  #input;
  #list;
  #model;
  #select;
  #found = [];
  #at = -1;

  /** `select(kind, name)` is called for what is chosen; `kind` ELSEWHERE: a vpod that is to be looked for in other pools. */
  constructor(input, list, model, select) {
    this.#input = input;
    this.#list = list;
    this.#model = model;
    this.#select = select;
    input.addEventListener("input", () => this.#look());
    input.addEventListener("focus", () => this.#look());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("mousedown", (event) => event.preventDefault()); // the input keeps the focus
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.#choose([...list.children].indexOf(option));
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
      event.preventDefault();
      input.focus();
      input.select();
    });
  }

  #look() {
    const value = this.#input.value.trim();
    const several = this.#model.pools.size > 1;
    this.#found = this.#model.search(value, FOUND);
    if (several && /^[^/]+\/[^/]+$/.test(value) && !this.#found.some(([, name]) => name === value)) this.#found.push([ELSEWHERE, value]);
    const options = this.#found.map(([kind, name], index) =>
      el("li", { role: "option", id: `found-${index}`, "aria-selected": "false" }, el("span", { class: "kind" }, kind === ELSEWHERE ? "vpod" : kind), kind === ELSEWHERE ? `look for ${name} in the other pools` : name),
    );
    const nothing = several ? "nothing found in this pool; a vpod's whole name, NAMESPACE/NAME, is looked for in all" : "nothing found";
    this.#list.replaceChildren(...(value && options.length === 0 ? [el("li", { class: "quiet", role: "option", "aria-disabled": "true", "aria-selected": "false" }, nothing)] : options));
    this.#list.hidden = this.#list.children.length === 0;
    this.#input.setAttribute("aria-expanded", String(!this.#list.hidden));
    this.#mark(options.length > 0 ? 0 : -1);
  }

  #mark(at) {
    this.#list.children[this.#at]?.setAttribute("aria-selected", "false");
    this.#at = at;
    const option = at >= 0 ? this.#list.children[at] : null;
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.#input.setAttribute("aria-activedescendant", option.id);
    else this.#input.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    const last = this.#found.length - 1;
    if (event.key === "ArrowDown" && last >= 0) this.#mark(this.#at >= last ? 0 : this.#at + 1);
    else if (event.key === "ArrowUp" && last >= 0) this.#mark(this.#at <= 0 ? last : this.#at - 1);
    else if (event.key === "Enter") this.#choose(this.#at);
    else if (event.key === "Escape" && !this.#list.hidden) this.#close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #choose(at) {
    const found = this.#found[at];
    if (!found) return;
    this.#close();
    this.#input.value = found[1];
    this.#select(...found);
    document.getElementById("selected")?.focus({ preventScroll: true });
  }

  #close() {
    this.#list.hidden = true;
    this.#input.setAttribute("aria-expanded", "false");
    this.#mark(-1);
  }

  /** Forget what was typed. */
  clear() {
    this.#input.value = "";
  }
}
