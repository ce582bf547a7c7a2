"use strict";
// The page to talk to. What a model wrote is only ever made into text nodes: no part of this file hands it to anything that reads HTML.

const $ = (id) => document.getElementById(id);
const STORE = "weir.chat.1", KEY = "weir.key", FIELDS = ["system", "temperature", "top_p", "max_tokens", "seed"];
const log = $("log");
let chat = { turns: [], set: {} }; // turns: {role, text, thought, state, times, error}; state: streaming, done, stopped, interrupted, failed
let busy = null;                   // {abort, turn} while an answer comes
let plain = false;                 // the model has no chat template: it continues text
let held = null;                   // a request that waits for a key

// ---- keeping ----

function load() {
  try {
    const was = JSON.parse(localStorage.getItem(STORE));
    if (was && Array.isArray(was.turns)) chat = { turns: was.turns.filter((t) => t && typeof t.text === "string"), set: was.set || {} };
  } catch { /* what cannot be read is not there */ }
  // Whatever was coming when the page went away has ended with it: the server cancels a request whose client leaves.
  for (const t of chat.turns) if (t.state === "streaming") t.state = "interrupted";
}

function save() {
  try {
    localStorage.setItem(STORE, JSON.stringify(chat));
  } catch {
    note("This browser has no room to keep the conversation: a reload will lose it.");
  }
}

function note(text, bad) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", !!bad);
}

// ---- showing ----

function make(tag, cls, text) {
  const el = document.createElement(tag);
  if (cls) el.className = cls;
  if (text !== undefined) el.textContent = text;
  return el;
}

function codeBlock(text) {
  const pre = make("pre"), copy = make("button", "", "Copy");
  copy.type = "button";
  copy.onclick = () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Refused"; });
  pre.tabIndex = 0; // it scrolls sideways: reachable by key
  pre.append(make("code", "", text), copy);
  return pre;
}

// A paragraph: `code` and **strong**, the rest as it stands.
function paragraph(text) {
  const p = make("p");
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (/^`[^`]+`$/.test(part)) p.append(make("code", "", part.slice(1, -1)));
    else if (/^\*\*[^*]+\*\*$/.test(part)) p.append(make("strong", "", part.slice(2, -2)));
    else if (part) p.append(part);
  }
  return p;
}

// Text that grows: blocks that are whole are made once and left alone, only the last, open one is made again.
function writer(el) {
  let done = 0, open = [];
  const closed = (text, from) => { // the end of the block at `from`, or -1 while it is open
    const fence = /^```[^\n`]*\n/.exec(text.slice(from, from + 100));
    if (fence) {
      const end = text.indexOf("\n```", from + fence[0].length - 1);
      if (end < 0) return -1;
      const line = text.indexOf("\n", end + 1);
      return line < 0 ? -1 : line + 1;
    }
    const blank = text.indexOf("\n\n", from), code = text.indexOf("\n```", from);
    if (blank < 0 && code < 0) return -1;
    return blank >= 0 && (code < 0 || blank < code) ? blank + 2 : code + 1;
  };
  const block = (raw) => {
    const fence = /^```[^\n`]*\n/.exec(raw);
    if (fence) return codeBlock(raw.slice(fence[0].length).replace(/(^|\n)```[^\n]*\n?$/, ""));
    return raw.trim() ? paragraph(raw.replace(/^\n+|\n+$/g, "")) : null;
  };
  return (text) => {
    for (const el of open) el.remove();
    for (let end; (end = closed(text, done)) >= 0; done = end) {
      const b = block(text.slice(done, end));
      if (b) el.append(b);
    }
    const tail = block(text.slice(done));
    open = tail ? [tail] : [];
    el.append(...open);
  };
}

function timesLine(t) {
  const p = make("p", "times"), bits = [], x = t.times || {};
  if (x.first !== undefined) bits.push(`first token ${Math.round(x.first)} ms`);
  if (x.out > 1 && x.span > 0) bits.push(`${((x.out - 1) * 1000 / x.span).toFixed(1)} tok/s`);
  if (x.in !== undefined) bits.push(`${x.in} in (${x.cached} cached)`, `${x.out} out`);
  if (t.state === "done" && x.finish === "length") bits.push("cut at the token limit");
  if (t.state === "stopped") bits.push("stopped by you");
  p.append(bits.join(" | "));
  if (t.state === "interrupted") p.append(make("b", "bad", `${bits.length ? " | " : ""}interrupted: the rest did not arrive`));
  if (t.error) p.append(make("b", "bad", (bits.length ? " | " : "") + t.error));
  if (t === chat.turns.at(-1) && t.state !== "streaming") {
    const again = make("button", "again", t.state === "done" ? "Again" : "Retry");
    again.type = "button";
    again.onclick = retry;
    p.append(again);
  }
  return p;
}

// The turn as an element; .grow(turn) shows more of it, .end(turn) its last line.
function show(t) {
  const el = make("article", t.role), body = make("div", "body");
  el.append(make("h2", "", t.role === "user" ? "You" : "Model"));
  let thought = null, line = null;
  const write = t.role === "user" ? (s) => { body.replaceChildren(make("p", "", s)); } : writer(body);
  el.append(body);
  el.grow = () => {
    if (t.thought) {
      if (!thought) {
        const d = make("details");
        thought = make("p");
        d.append(make("summary", "", "Thinking"), thought);
        el.insertBefore(d, body);
      }
      thought.textContent = t.thought;
    }
    write(t.text);
  };
  el.end = () => {
    if (line) line.remove();
    line = t.role === "assistant" ? timesLine(t) : null;
    if (line) el.append(line);
  };
  el.grow();
  el.end();
  log.append(el);
  return el;
}

function showAll() {
  log.replaceChildren();
  for (const t of chat.turns) show(t);
  log.scrollTop = log.scrollHeight;
}

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;

// ---- the server ----

function headers() {
  const h = { "Content-Type": "application/json" }, key = sessionStorage.getItem(KEY);
  if (key) h.Authorization = `Bearer ${key}`;
  return h;
}

async function reason(answer) { // what a refusal says, and its parts
  let e = {};
  try {
    e = (await answer.json()).error || {};
  } catch { /* not ours, or cut short */ }
  const wait = answer.headers.get("retry-after");
  return { status: answer.status, text: `${e.message || `the server answered ${answer.status}`}${wait && answer.status === 503 ? ` (again in ${wait} s)` : ""}`, param: e.param };
}

function body() {
  const s = chat.set, doc = { model: $("model").value, stream: true, stream_options: { include_usage: true } };
  for (const f of ["temperature", "top_p", "max_tokens", "seed"]) if (s[f] !== undefined && s[f] !== "") doc[f] = Number(s[f]);
  const past = chat.turns.slice(0, -1);
  if (plain) { // one text, gone on with
    doc.prompt = past.map((t) => t.text).join("");
    if (doc.max_tokens === undefined) doc.max_tokens = 256; // text without a template seldom ends by itself
    return doc;
  }
  doc.messages = past.filter((t) => t.text || t.role === "user").map((t) => ({ role: t.role, content: t.text }));
  if (s.system) doc.messages.unshift({ role: "system", content: s.system });
  return doc;
}

// Server-sent events of a response: calls on(data) for each; true when the stream ended with [DONE].
async function events(answer, on) {
  const reader = answer.body.getReader(), utf8 = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    text += utf8.decode(value, { stream: true }).replace(/\r/g, "");
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return true;
      if (data) on(JSON.parse(data));
    }
  }
}

function take(t, ev, sent) {
  if (ev.error) throw new Error(ev.error.message || "the server broke off with an error");
  const c = ev.choices && ev.choices[0], x = t.times;
  if (c) {
    const d = c.delta || {}, text = c.text || d.content || "", thought = d.reasoning_content || d.reasoning || "";
    if (text || thought) {
      const now = performance.now();
      if (x.first === undefined) x.first = now - sent;
      x.span = now - sent - x.first;
      t.text += text;
      if (thought) t.thought = (t.thought || "") + thought;
    }
    if (c.finish_reason) x.finish = c.finish_reason;
  }
  if (ev.usage) {
    x.in = ev.usage.prompt_tokens;
    x.out = ev.usage.completion_tokens;
    x.cached = (ev.usage.prompt_tokens_details || {}).cached_tokens || 0;
  }
}

async function stream(t, el, signal) {
  const sent = performance.now();
  const answer = await fetch(plain ? "/v1/completions" : "/v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body()), signal });
  if (!answer.ok) {
    const why = await reason(answer);
    if (why.status === 401) askKey(retry);
    t.state = "failed";
    t.error = why.text;
    return;
  }
  let frame = 0, kept = 0;
  const whole = await events(answer, (ev) => {
    take(t, ev, sent);
    if (!frame) frame = requestAnimationFrame(() => {
      const follow = atEnd();
      frame = 0;
      el.grow();
      if (follow) log.scrollTop = log.scrollHeight;
    });
    if (performance.now() - kept > 500) {
      kept = performance.now();
      save();
    }
  });
  cancelAnimationFrame(frame);
  t.state = whole ? "done" : "interrupted";
}

async function answer() {
  const t = { role: "assistant", text: "", state: "streaming", times: {} };
  chat.turns.push(t);
  const el = show(t), abort = new AbortController();
  busy = { abort, turn: t };
  log.setAttribute("aria-busy", "true"); // a screen reader gets the answer when it is whole, not by the word
  log.scrollTop = log.scrollHeight;
  buttons();
  note("The model is answering.");
  save();
  try {
    await stream(t, el, abort.signal);
  } catch (e) {
    t.state = abort.signal.aborted ? "stopped" : e instanceof TypeError || e.name === "NetworkError" ? "interrupted" : "failed";
    if (t.state === "failed") t.error = e.message;
  }
  busy = null;
  const follow = atEnd();
  el.grow();
  el.end();
  if (follow) log.scrollTop = log.scrollHeight;
  log.removeAttribute("aria-busy");
  buttons();
  save();
  if (t.state === "failed") note(t.error, true);
  else if (t.state === "interrupted") lost("The connection was lost in mid-answer.");
  else note(t.state === "stopped" ? "Stopped." : "The answer is whole.");
}

function retry() {
  if (busy || !chat.turns.length) return;
  if (chat.turns.at(-1).role === "assistant") chat.turns.pop();
  showAll();
  if (chat.turns.length) answer();
}

// ---- getting to the server ----

async function connect() {
  let answer;
  try {
    answer = await fetch("/v1/models", { headers: headers() });
  } catch {
    lost("The server does not answer.");
    return;
  }
  if (answer.status === 401) {
    askKey(connect);
    return;
  }
  if (answer.status === 503) {
    note("The model is loading.");
    setTimeout(connect, 1000);
    return;
  }
  if (!answer.ok) {
    note((await reason(answer)).text, true);
    return;
  }
  const list = (await answer.json()).data || [], want = chat.set.model;
  $("model").replaceChildren(...list.map((m) => { const o = make("option", "", m.id); o.value = m.id; return o; }));
  if (list.some((m) => m.id === want)) $("model").value = want;
  $("model").disabled = list.length < 2;
  await learn();
  buttons();
}

// Whether the model has a chat template is asked of the one who would apply it. A server without that path is taken at its word that it chats.
async function learn() {
  plain = false;
  try {
    const r = await fetch("/apply-template", { method: "POST", headers: headers(), body: JSON.stringify({ messages: [{ role: "user", content: "x" }] }) });
    plain = !r.ok && (await reason(r)).param === "messages";
  } catch { /* connect says so */ }
  $("text").placeholder = plain ? "Text to go on with (this model has no chat template)" : "Message (Enter sends, Shift+Enter starts a line, Esc stops)";
  note(plain ? "This model has no chat template: it goes on with your text." : "");
}

let waiting = 0;
function lost(text) {
  note(`${text} Trying again.`, true);
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    try {
      await fetch("/health");
      note("");
      connect();
    } catch {
      lost("The server does not answer.");
    }
  }, 1500);
}

function askKey(then) {
  held = then;
  sessionStorage.removeItem(KEY);
  $("keyform").hidden = false;
  $("key").focus();
  note("This server asks for an API key.");
}

// ---- the person ----

function buttons() {
  $("send").hidden = !!busy;
  $("stop").hidden = !busy;
  $("new").disabled = !!busy;
}

function stop() {
  if (busy) busy.abort.abort();
  $("text").focus();
}

$("say").onsubmit = (e) => {
  e.preventDefault();
  const text = $("text").value;
  if (busy || !text.trim()) return;
  const before = chat.turns.at(-1);
  if (before) { // its Retry button goes: the conversation has gone on
    const b = log.querySelector(".again");
    if (b) b.remove();
  }
  $("text").value = "";
  const t = { role: "user", text, state: "done" };
  chat.turns.push(t);
  show(t);
  answer();
};
$("text").onkeydown = (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $("say").requestSubmit();
};
document.onkeydown = (e) => {
  if (e.key === "Escape" && busy) stop();
};
$("stop").onclick = stop;
$("new").onclick = () => {
  chat.turns = [];
  save();
  showAll();
  note("");
  $("text").focus();
};
$("tune").onclick = () => {
  $("settings").hidden = !$("settings").hidden;
  $("tune").setAttribute("aria-expanded", String(!$("settings").hidden));
};
$("settings").onsubmit = (e) => e.preventDefault();
for (const f of FIELDS) $(f).oninput = () => {
  chat.set[f] = $(f).value;
  save();
};
$("model").onchange = () => {
  chat.set.model = $("model").value;
  save();
  learn();
};
$("keyform").onsubmit = (e) => {
  e.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  $("key").value = "";
  $("keyform").hidden = true;
  const then = held || connect;
  held = null;
  note("");
  $("text").focus();
  then();
  if (then !== connect) connect();
};
window.addEventListener("pagehide", () => { if (busy) save(); });

load();
for (const f of FIELDS) if (chat.set[f] !== undefined) $(f).value = chat.set[f];
showAll();
connect();
