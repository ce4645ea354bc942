// Speaks with the console: events as they come, questions, deeds. The token comes in the fragment of the address, which
// no server sees; it is kept for this tab alone, and goes out in a header, which no other page can set.

const KEPT = "mqproto-console-token";
const PAUSE_MS = 1000;
const MOST_MS = 5000;

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEPT, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEPT);
}

const secret = token();
addEventListener("hashchange", () => location.hash.includes("token=") && location.reload());
const headers = () => ({ Authorization: `Bearer ${secret}` });

/** What a console says when it refuses. */
async function refusal(answer) {
  try {
    return (await answer.json()).error || answer.statusText;
  } catch {
    return answer.statusText || `status ${answer.status}`;
  }
}

/** Ask for what is at a path. */
export async function ask(path, of = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(of)}`, { headers: headers() });
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.json();
}

/** Have something done. */
export async function act(deed) {
  const answer = await fetch("/do", {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(deed),
  });
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.json();
}

/** Tell of events until the page goes, connecting again when it must; of a page that nobody sees, none are asked for.

  on.event(name, data), on.lost(), on.refused(text)
*/
export async function listen(on) {
  let pause = PAUSE_MS;
  for (;;) {
    await seen();
    const ending = new AbortController();
    const hide = () => document.hidden && ending.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      const answer = await fetch("/events", { headers: headers(), signal: ending.signal });
      if (answer.status === 401 || answer.status === 403) return on.refused(await refusal(answer));
      if (answer.ok) {
        pause = PAUSE_MS;
        await read(answer.body.pipeThrough(new TextDecoderStream()), on.event);
      }
    } catch {
      // It is gone, or nobody looks.
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
    if (!document.hidden) {
      on.lost();
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(MOST_MS, pause * 2);
    }
  }
}

const seen = () =>
  new Promise((done) => {
    if (!document.hidden) return done();
    document.addEventListener("visibilitychange", function look() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    });
  });

async function read(stream, tell) {
  let rest = "";
  for await (const part of chunks(stream)) {
    rest += part;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const [first, second] = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      tell(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
    }
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
