"use strict";
// Looks up messages among those embedded in the page. Texts come from captures: they are only ever set as textContent.
(() => {
  const data = JSON.parse(document.getElementById("messages").textContent);
  const word = (place) => (place === null ? null : data.words[place]);
  const messages = data.messages.map((values) => {
    const message = Object.fromEntries(data.columns.map((name, place) => [name, values[place]]));
    for (const name of data.texts) message[name] = word(message[name]);
    message.sought = `${message.label || ""}\n${message.id}`.toLowerCase();
    message.called = data.called[message.queue] || "";
    message.inQueue = `${message.queue || ""}\n${message.called}`.toLowerCase();
    message.atHost = message.route.map(word).join("\n").toLowerCase();
    return message;
  });
  const byId = new Map(messages.map((message) => [message.id, message]));
  const SHOWN = 50;
  const FINDINGS_OPEN = 5;
  const box = document.getElementById("search");
  const queue = document.getElementById("queue");
  const host = document.getElementById("host");
  const order = document.getElementById("order");
  const results = document.getElementById("results");
  const said = document.getElementById("said");
  const shown = document.getElementById("history");

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const tag = (outcome) => element("span", outcome, `tag ${data.styles[outcome] || "open"}`);
  // Times are microseconds since 1970: whole numbers that JavaScript holds exactly.
  const when = (us) => {
    const ms = Math.floor(us / 1000);
    const text = new Date(ms).toISOString().replace("T", " ").replace("Z", "");
    return `${text}${String(us - ms * 1000).padStart(3, "0")}`;
  };
  const duration = (us) => {
    if (us < 0) return `−${duration(-us)}`;
    for (const [size, unit] of [[3600e6, "h"], [60e6, "min"], [1e6, "s"], [1e3, "ms"]]) {
      if (us >= size) return `${Number((us / size).toPrecision(3))} ${unit}`;
    }
    return `${us} µs`;
  };
  const marks = (message) => message.marks.flatMap(([style, text]) => [" ", element("span", word(text), `tag ${word(style)}`)]);
  const quoted = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;
  const named = (message) => message.label || "no label";
  // Labels may be alike; the number that its queue manager gave it is not.
  const numbered = (message) => element("span", ` \\${message.id.split("\\").pop()}`, "faint number");

  const sentence = ([before, us, after]) =>
    us === undefined ? word(before) : `${word(before)} ${duration(us)}${word(after)}`;

  const show = (message) => {
    const parts = [element("h3", named(message))];
    parts[0].append(numbered(message), " ", tag(message.outcome), ...marks(message));
    parts.push(element("p", sentence(message.verdict)));
    const route = element("div", null, "route");
    route.setAttribute("aria-label", "route");
    message.route.map(word).forEach((name, place) => {
      if (place) route.append(element("span", "→"));
      route.append(element("b", name));
    });
    parts.push(route);
    const table = element("table");
    const head = element("tr");
    const places = new Set(message.steps.filter(([, , file]) => file !== undefined).map(([, , file]) => file));
    const where = places.size === 1 ? `where, in ${word([...places][0])}` : "where to see it";
    const days = new Set(message.steps.map(([us]) => when(us).slice(0, 10)));
    const clock = (us) => (days.size === 1 ? when(us).slice(11) : when(us));
    const day = days.size === 1 ? `${[...days][0]}, UTC` : "time, UTC";
    const heads = ["since first seen", day, "what happened", where];
    head.className = "heads";
    for (const name of heads) head.append(element("th", name));
    table.append(head);
    for (const [us, said, file, frame] of message.steps) {
      const row = element("tr");
      row.append(element("td", us === message.first ? "0" : duration(us - message.first), "right"));
      row.append(element("td", clock(us), "nowrap"), element("td", sentence(said), "text"));
      const place = element("td", null, "text");
      if (frame) place.append(element("code", `frame.number == ${frame}`));
      if (frame && places.size > 1) place.append(element("span", ` in ${word(file)}`, "faint"));
      row.append(place);
      heads.forEach((name, at) => { row.cells[at].dataset.head = name; });
      table.append(row);
    }
    const wide = element("div", null, "wide");
    // Who has no mouse scrolls it by its keys.
    for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", "what happened"]]) wide.setAttribute(name, value);
    wide.append(table);
    parts.push(wide);
    const list = element("dl");
    const facts = {
      Identifier: message.id, Queue: message.called, "Format name": message.queue, Delivery: message.delivery,
      Sequence: message.sequence && `${message.sequence}, number ${message.number}`,
      Body: `${message.bytes} bytes`, ...Object.fromEntries(message.security.map((pair) => pair.map(word))), Resends: message.resends,
      "Whole story": message.complete ? null : "no: more packets carried it than are looked at",
    };
    for (const [name, value] of Object.entries(facts)) {
      if (value !== null && value !== undefined && value !== "") list.append(element("dt", name), element("dd", value));
    }
    const command = element("dd");
    command.append(element("code", `mqproto decode ${quoted(message.file)} --follow ${quoted(message.id)}`));
    list.append(element("dt", "Packet by packet"), command);
    parts.push(list);
    if (message.findings.length) {
      const found = element("details");
      found.open = message.findings.length <= FINDINGS_OPEN;
      const few = data.partial ? ", of those that this page has" : "";
      found.append(element("summary", `Findings: ${message.findings.length}${few}`));
      const items = element("ul");
      for (const [code, text] of message.findings) items.append(element("li", `${word(code)}: ${word(text)}`));
      found.append(items);
      parts.push(found);
    }
    shown.replaceChildren(...parts);
    for (const button of results.querySelectorAll("button")) {
      button.setAttribute("aria-current", String(button.dataset.id === message.id));
    }
  };

  const typed = (input) => input.value.trim().toLowerCase();

  const find = () => {
    const sought = typed(box);
    const [inQueue, atHost] = [typed(queue), typed(host)];
    const found = !sought && !inQueue && !atHost ? [] : messages.filter((message) =>
      message.sought.includes(sought) && message.inQueue.includes(inQueue) && message.atHost.includes(atHost));
    // Whoever types 17 means "order 17" rather than "order 170" or "order 117".
    const split = /[\s\\]+/;
    const exact = new Set(!sought ? [] : found.filter((message) =>
      message.sought.split("\n").some((text) => text === sought || text.split(split).includes(sought))));
    found.sort((a, b) => exact.has(b) - exact.has(a));
    results.replaceChildren(...found.slice(0, SHOWN).map((message) => {
      const button = element("button");
      button.type = "button";
      button.dataset.id = message.id;
      const what = element("span", named(message), "what");
      what.append(numbered(message), ...marks(message));
      button.append(what, element("span", when(message.first), "when"), tag(message.outcome));
      button.addEventListener("click", () => { location.hash = `message=${encodeURIComponent(message.id)}`; });
      const item = element("li");
      item.append(button);
      return item;
    }));
    said.textContent = !sought && !inQueue && !atHost ? "" : found.length === 1 ? "1 message"
      : `${found.length.toLocaleString("en")} messages${found.length > SHOWN ? `, the first ${SHOWN} shown` : ""}`;
    const best = exact.size === 1 || found.length === 1 ? found[0] : byId.get(current());
    if (found.includes(best)) show(best);
    else shown.replaceChildren();
  };

  // Rows of tables say what they are about; a row that does not say it stays.
  const narrow = () => {
    const wanted = { label: typed(box), queue: typed(queue), host: typed(host) };
    for (const table of document.querySelectorAll("table")) {
      const rows = [...table.querySelectorAll("tr[data-host]")];
      let shown = 0;
      for (const row of rows) {
        row.hidden = Object.entries(wanted).some(([name, text]) =>
          text && row.dataset[name] !== undefined && !row.dataset[name].toLowerCase().includes(text));
        shown += !row.hidden;
      }
      if (rows.length) {
        let note = table.parentElement.nextElementSibling;
        if (!note || !note.classList.contains("narrowed")) {
          note = element("p", null, "faint narrowed");
          note.setAttribute("role", "status");
          table.parentElement.after(note);
        }
        note.textContent = shown < rows.length ? `${shown} of ${rows.length} rows, as the filter above says` : "";
      }
    }
  };
  const sort = () => {
    for (const name of ["queues-table", "hops-table"]) {
      const table = document.getElementById(name);
      if (!table) continue;
      const rows = [...table.querySelectorAll("tr[data-slow]")];
      const other = order.value === "slow" ? "count" : "slow";
      rows.sort((a, b) => b.dataset[order.value] - a.dataset[order.value] || b.dataset[other] - a.dataset[other]);
      rows[0]?.parentElement.append(...rows);
      if (table.caption) {
        table.caption.textContent = table.caption.textContent.replace(/^[^.]*\./,
          order.value === "slow" ? "The slowest first." : "Those with most messages first.");
      }
    }
  };
  const parameter = (name) => {
    for (const part of location.hash.slice(1).split("&")) {
      const [key, value] = part.split("=", 2);
      if (key === name && value !== undefined) {
        try { return decodeURIComponent(value); } catch { return null; }
      }
    }
    return null;
  };
  const current = () => parameter("message");
  const follow = () => {
    const asked = { search: box, queue, host };
    const given = Object.keys(asked).filter((name) => parameter(name) !== null);
    for (const name of given) asked[name].value = parameter(name);
    if (given.length) { find(); narrow(); return; }
    const message = byId.get(current());
    if (message) { show(message); shown.scrollIntoView({ block: "nearest" }); }
  };

  for (const input of [box, queue, host]) {
    input.addEventListener("input", () => { find(); narrow(); });
    input.disabled = false;
  }
  order.addEventListener("change", sort);
  order.disabled = false;
  window.addEventListener("hashchange", follow);
  follow();
})();
