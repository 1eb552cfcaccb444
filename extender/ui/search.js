// The search: a combobox over all names that the page knows.

import { el } from "./dom.js";

const FOUND = 20;

export class Search {
  #input;
  #list;
  #model;
  #select;
  #found = [];
  #at = -1;

  /** `select(kind, name)` is called for what is chosen. */
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
    this.#found = this.#model.search(this.#input.value, FOUND);
    const options = this.#found.map(([kind, name], index) =>
      el("li", { role: "option", id: `found-${index}`, "aria-selected": "false" }, el("span", { class: "kind" }, kind), name),
    );
    const nothing = this.#input.value.trim() && options.length === 0;
    this.#list.replaceChildren(...(nothing ? [el("li", { class: "quiet", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "nothing found")] : options));
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
