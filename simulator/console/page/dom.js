// Makes elements. Whatever text comes from nodes is only ever text: nothing here turns it into HTML.

const NAMESPACE = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["g", "line", "rect", "text", "path", "circle", "title", "tspan", "polyline"]);
const ATTRIBUTES = new Set([
  "class", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "d", "width", "height", "points", "fill", "stroke",
  "stroke-width", "stroke-dasharray", "text-anchor", "font-size", "font-weight", "paint-order", "transform",
]);

export const $ = (id) => document.getElementById(id);

/** An element of HTML with attributes; what is called `on…` is a listener, and false leaves an attribute out. */
export function h(name, attributes = {}, ...inner) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...inner.filter((each) => each !== null && each !== undefined));
  return made;
}

/** An element of SVG. */
export function s(name, attributes = {}, ...inner) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
}

/** A shape as captures/drawing/shapes.py tells it, of those elements and attributes that draw. */
export function shape([name, attributes, inner]) {
  if (!SHAPES.has(name)) return document.createTextNode("");
  const known = Object.fromEntries(Object.entries(attributes).filter(([key]) => ATTRIBUTES.has(key)));
  return s(name, known, ...(typeof inner === "string" ? [inner] : inner.map(shape)));
}

/** Set a text if it is another: what is the same is not touched, so that nothing is read out twice. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Have a parent show items in their order, each in an element of its own that stays: with it the focus stays. */
export function keyed(parent, items, keyOf, make, update) {
  const known = (parent.keyed ??= new Map());
  const wanted = new Set(items.map(keyOf));
  // What is gone goes first: an element that has to be moved loses the focus.
  for (const [key, node] of known) {
    if (wanted.has(key)) continue;
    node.remove();
    known.delete(key);
  }
  const focused = document.activeElement;
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = known.get(key);
    if (!node) {
      node = make(item);
      known.set(key, node);
    }
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}
