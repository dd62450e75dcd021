import { main, question, tool, weather } from './run.mjs';

// The argument is the package: openai, or the alias of another version of it.
const { default: OpenAI } = await import(process.argv[2]);

const client = run => new OpenAI({ apiKey: 'none', baseURL: `${run.url}/v1`, maxRetries: run.retries ?? 0 });

const request = run => ({
  model: 'sim-1',
  messages: [{ role: 'user', content: question }],
  stream_options: { include_usage: true },
  ...(run.tools && { tools: [{ type: 'function', function: { ...tool, parameters: weather } }] }),
  ...(run.maxTokens && { max_tokens: run.maxTokens }),
  ...(run.choices && { n: run.choices }),
});

const calls = list => (list ?? []).map(c => ({ id: c.id, name: c.function.name, arguments: c.function.arguments }));

function delta(chunk, got) {
  const choice = chunk.choices.find(c => c.index === 0);
  got.text += choice?.delta.content ?? '';
  got.refusal += choice?.delta.refusal ?? '';
  got.reasoning += choice?.delta.reasoning_content ?? ''; // no field of the SDK's types
}

function usage(u, got) {
  if (u) got.usage = { input: u.prompt_tokens, output: u.completion_tokens };
}

await main({
  // chat reads chunk by chunk, as most applications do.
  async chat(run, got) {
    const tools = [];
    for await (const chunk of await client(run).chat.completions.create({ ...request(run), stream: true })) {
      delta(chunk, got);
      usage(chunk.usage, got);
      const choice = chunk.choices.find(c => c.index === 0);
      for (const call of choice?.delta.tool_calls ?? []) {
        tools[call.index] ??= { id: call.id, function: { name: call.function.name, arguments: '' } };
        tools[call.index].function.arguments += call.function.arguments ?? '';
      }
      got.finish = choice?.finish_reason ?? got.finish;
    }
    got.tools = calls(tools);
    got.ended = true;
  },

  // helper lets the SDK put the completion together.
  async helper(run, got) {
    const stream = client(run).chat.completions.stream(request(run));
    for await (const chunk of stream) delta(chunk, got);
    const completion = await stream.finalChatCompletion();
    const { message, finish_reason } = completion.choices.find(c => c.index === 0);
    got.text = message.content ?? '';
    got.refusal = message.refusal ?? '';
    got.tools = calls(message.tool_calls);
    got.finish = finish_reason;
    usage(completion.usage, got);
    got.ended = true;
  },

  async responses(run, got) {
    const stream = client(run).responses.stream({ model: 'sim-1', input: question });
    stream.on('response.output_text.delta', e => { got.text += e.delta; });
    stream.on('response.refusal.delta', e => { got.refusal += e.delta; });
    stream.on('response.reasoning_summary_text.delta', e => { got.reasoning += e.delta; });
    const response = await stream.finalResponse();
    got.tools = response.output.filter(o => o.type === 'function_call')
      .map(o => ({ id: o.call_id, name: o.name, arguments: o.arguments }));
    got.finish = response.status;
    got.usage = { input: response.usage.input_tokens, output: response.usage.output_tokens };
    got.ended = true;
  },
});
