import { ChatOpenAI } from '@langchain/openai';

import { main, question, tool, weather } from './run.mjs';

await main({
  async chat(run, got) {
    const model = new ChatOpenAI({
      model: 'sim-1',
      apiKey: 'none',
      configuration: { baseURL: `${run.url}/v1` },
      maxRetries: run.retries ?? 0, // by itself it tries six times again
      ...(run.maxTokens && { maxTokens: run.maxTokens }),
    });
    const bound = run.tools ? model.bindTools([{ type: 'function', function: { ...tool, parameters: weather } }]) : model;
    let message;
    for await (const chunk of await bound.stream(question)) {
      message = message?.concat(chunk) ?? chunk;
      read(message, got);
    }
    got.ended = true;
  },
});

// read reads what LangChain has put together so far.
function read(message, got) {
  got.text = message.text;
  got.reasoning = message.additional_kwargs.reasoning_content ?? '';
  got.tools = (message.tool_call_chunks ?? []).map(c => ({ id: c.id, name: c.name, arguments: c.args }));
  got.finish = message.response_metadata.finish_reason;
  const usage = message.usage_metadata;
  if (usage) got.usage = { input: usage.input_tokens, output: usage.output_tokens };
}
