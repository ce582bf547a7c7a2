// The official JavaScript client against the server at WEIR_URL. Started by `run`.
import OpenAI from "openai";
import assert from "node:assert/strict";

const client = new OpenAI({ baseURL: process.env.WEIR_URL + "/v1", apiKey: process.env.WEIR_KEY, maxRetries: 0 });
const model = "tiny-llama-q";
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }];
const chat = (more) => client.chat.completions.create({ model, messages, ...more });

async function refused(call, status, param, code) {
  await assert.rejects(call, (e) => {
    assert.equal(e.status, status);
    assert.equal(e.param ?? null, param);
    assert.equal(e.code ?? null, code);
    return true;
  });
}

const tests = {
  async models() {
    const names = [];
    for await (const m of client.models.list()) names.push(m.id);
    assert.deepEqual(names, [model]);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async chat_whole() {
    const r = await chat({ max_tokens: 8, seed: 1 });
    assert.equal(r.choices[0].message.role, "assistant");
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
  },
  async chat_stream() {
    const whole = (await chat({ max_tokens: 12, seed: 2 })).choices[0].message.content;
    let text = "", usage = null, reason = null;
    for await (const c of await chat({ max_tokens: 12, seed: 2, stream: true, stream_options: { include_usage: true } })) {
      text += c.choices[0]?.delta?.content ?? "";
      reason = c.choices[0]?.finish_reason ?? reason;
      usage = c.usage ?? usage;
    }
    assert.equal(text, whole);
    assert.ok(usage.completion_tokens > 0);
    assert.ok(["stop", "length"].includes(reason));
  },
  async chat_stream_helper() {
    const r = await client.chat.completions.stream({ model, messages, max_tokens: 8, seed: 2 }).finalChatCompletion();
    assert.equal(typeof r.choices[0].message.content, "string");
  },
  async chat_logprobs() {
    const r = await chat({ max_tokens: 3, temperature: 0, logprobs: true, top_logprobs: 2, ignore_eos: true });
    assert.equal(r.choices[0].logprobs.content.length, 3);
    assert.equal(r.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  async completions() {
    const r = await client.completions.create({ model, prompt: ["Hello", "World"], max_tokens: 4, echo: true, logprobs: 1 });
    assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
    assert.ok(r.choices[0].text.startsWith("Hello"));
    let text = "";
    for await (const c of await client.completions.create({ model, prompt: "Hello", max_tokens: 9, seed: 4, stream: true })) text += c.choices[0].text;
    assert.equal(text, (await client.completions.create({ model, prompt: "Hello", max_tokens: 9, seed: 4 })).choices[0].text);
  },
  async responses() {
    const ask = { model, input: "Hello", max_output_tokens: 8, seed: 7 };
    const whole = await client.responses.create(ask);
    assert.ok(whole.id.startsWith("resp_") && typeof whole.output_text === "string");
    let text = "", last;
    for await (const ev of await client.responses.create({ ...ask, stream: true })) {
      if (ev.type === "response.output_text.delta") text += ev.delta;
      last = ev.type;
    }
    assert.equal(text, whole.output_text);
    assert.equal(last, "response." + whole.status);
    const next = await client.responses.create({ ...ask, input: "More", previous_response_id: whole.id });
    assert.ok(next.usage.input_tokens > whole.usage.input_tokens);
    assert.equal((await client.responses.retrieve(whole.id)).output_text, whole.output_text);
    const helper = client.responses.stream({ ...ask, stop_token_ids: [40], min_tokens: 3, logit_bias: { 40: 100 } });
    assert.equal((await helper.finalResponse()).status, "completed");
  },
  async headers() {
    const { data, response } = await client.chat.completions.create({ model, messages, max_tokens: 1 }, { headers: { "X-Request-Id": "sdk-2" } }).withResponse();
    assert.equal(response.headers.get("x-request-id"), "sdk-2");
    assert.ok(data.choices.length === 1);
  },
  async errors() {
    await refused(() => chat({ temperature: 5 }), 400, "temperature", null);
    await refused(() => chat({ response_format: { type: "json_object" } }), 400, "response_format", "unsupported_value");
    await refused(() => client.chat.completions.create({ model: "other", messages }), 404, "model", "model_not_found");
    const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: "wrong-key-here", maxRetries: 0 });
    await refused(() => stranger.models.list(), 401, null, "invalid_api_key");
  },
  async aborting_a_stream() {
    const s = await chat({ max_tokens: 200, stream: true });
    for await (const _ of s) { s.controller.abort(); break; }
    assert.equal((await chat({ max_tokens: 1 })).choices.length, 1);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}: ${String(e.message).split(/\s+/).join(" ").slice(0, 500)}`);
  }
}
process.exit(failed ? 1 : 0);
