// Elements, made so that what comes from the cluster can be nothing but text: there is no way here to hand a string to an HTML parser.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(2).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

/** An HTML element. `attributes`: names are ours, never data; `onclick` and the like are listeners. Children: nodes or text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set an element's text where it is another. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, whose name is ours, where it is another. */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** `3 pods`, `1 pod`. */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** `38 %`. */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %";
}

/**
 * A table with a caption. Cells are nodes or text; a number is aligned as one. `head`: titles.
 * `sort`: {name, column, descending, by(index)}, where rows can be sorted: titles are buttons then.
 */
export function table(caption, head, rows, sort) {
  const cell = (value, index) =>
    index === 0
      ? el("th", { scope: "row" }, value)
      : el("td", typeof value === "number" ? { class: "number" } : {}, typeof value === "number" ? value.toLocaleString("en") : value);
  const title = (text, index) => {
    const attributes = { scope: "col", class: typeof rows[0]?.[index] === "number" && index > 0 && "number" };
    if (!sort) return el("th", attributes, text);
    const order = index !== sort.column ? "none" : sort.descending ? "descending" : "ascending";
    const button = el("button", { type: "button", class: "sort", "data-focus": `${sort.name} ${text}`, onclick: () => sort.by(index) }, text);
    return el("th", { ...attributes, "aria-sort": order }, button);
  };
  return el(
    "table",
    {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, head.map(title))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))),
  );
}
