// What happened to a message: the words of mqproto history, and a ladder of the same steps. And what has failed.

import { deed, say } from "./deeds.js";
import { $, h, s, shape } from "./dom.js";
import { ask } from "./feed.js";
import { rights } from "./rights.js";
import { count, messages } from "./words.js";

export function begin() {
  $("story-form").addEventListener("submit", (event) => {
    event.preventDefault();
    tell($("story-of").value.trim());
  });
  $("failed-ask").addEventListener("click", failed);
}

/** Tell the story of a message. */
export async function tell(name) {
  if (!name) return;
  const inner = $("story-inner");
  $("story-of").value = name;
  inner.replaceChildren(h("p", { class: "faint", role: "status" }, "Reading the logs …"));
  $("story").scrollIntoView({ block: "start" });
  try {
    const found = await ask("/story", { of: name });
    inner.replaceChildren(...told(found));
    inner.focus({ preventScroll: true });
  } catch (error) {
    inner.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
  }
}

function told(found) {
  const parts = [];
  for (const line of found.notes) parts.push(h("p", { class: "faint" }, line));
  if (found.now.length) {
    parts.push(h("h3", {}, "Now"), ...found.now.map((line) => h("p", { class: line.startsWith(" ") ? "inner" : "" }, line.trimStart())));
  }
  if (found.ladder) {
    const [width, height] = found.ladder.size;
    const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The same steps as a ladder; they follow in words" }, shape(found.ladder.shape));
    picture.style.width = `${width}px`;
    parts.push(h("h3", {}, "Its way"), h("div", { class: "wide ladder", tabindex: "0", role: "group", "aria-label": "Ladder" }, picture));
  }
  if (found.steps.length) {
    const rows = found.steps.map((step) =>
      h("tr", {}, h("td", { class: "nowrap", "data-label": "since the first" }, step.since), h("th", { scope: "row", "data-label": "where" }, step.who),
        h("td", { "data-label": "what happened" }, step.said, step.missing ? h("span", { class: "open" }, " (lines before it are missing in the log)") : null)));
    parts.push(
      h("h3", {}, "Step by step"),
      h("div", { class: "wide" }, h("table", {}, h("caption", { class: "faint" }, found.began),
        h("thead", {}, h("tr", {}, ...["since the first", "where", "what happened"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, ...rows))),
    );
  }
  if (!parts.length) parts.push(h("p", {}, "Nobody knows it."));
  return parts;
}

async function failed() {
  const inner = $("failed-inner");
  inner.replaceChildren(h("p", { class: "faint", role: "status" }, "Looking into the stores …"));
  try {
    const found = await ask("/failed");
    const list = found.failed.map((each) => h("li", {},
      h("b", {}, each.label || "no label"), ` to ${each.queue}: ${each.failure}${each.reason ? `, ${each.reason}` : ""}`,
      h("code", {}, each.message),
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => tell(each.message) }, "Story"),
        rights.act ? deed("Retry", { deed: "retry", messages: [each.message] }, { then: failed }) : null)));
    inner.replaceChildren(
      h("p", { role: "status" }, found.failed.length ? `${messages(found.count)} failed${found.count > list.length ? `; the first ${count(list.length)}` : ""}` : "Nothing has failed."),
      found.failed.length && rights.act
        ? deed("Retry all", { deed: "retry", messages: found.failed.map((each) => each.message) }, { ask: `Send ${messages(list.length)} where they were once more?`, then: failed })
        : "",
      h("ul", { class: "messages" }, ...list),
      ...found.notes.map((line) => h("p", { class: "faint" }, line)),
    );
  } catch (error) {
    inner.replaceChildren();
    say(error.message, true);
  }
}
