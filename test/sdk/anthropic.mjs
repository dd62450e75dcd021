import Anthropic from '@anthropic-ai/sdk';

import { main, question, tool, weather } from './run.mjs';

await main({
  async messages(run, got) {
    const client = new Anthropic({ apiKey: 'none', baseURL: run.url, maxRetries: run.retries ?? 0 });
    const stream = client.messages.stream({
      model: 'sim-1',
      max_tokens: run.maxTokens ?? 4096,
      messages: [{ role: 'user', content: question }],
      ...(run.tools && { tools: [{ ...tool, input_schema: weather }] }),
    });
    stream.on('text', delta => { got.text += delta; });
    stream.on('thinking', delta => { got.reasoning += delta; });
    const message = await stream.finalMessage();
    const blocks = type => message.content.filter(b => b.type === type);
    got.text = blocks('text').map(b => b.text).join('');
    got.reasoning = blocks('thinking').map(b => b.thinking).join('');
    got.tools = blocks('tool_use').map(b => ({ id: b.id, name: b.name, arguments: JSON.stringify(b.input) }));
    got.finish = message.stop_reason;
    const u = message.usage; // whose input tokens are those that no cache read or wrote
    got.usage = {
      input: u.input_tokens + (u.cache_read_input_tokens ?? 0) + (u.cache_creation_input_tokens ?? 0),
      output: u.output_tokens,
    };
    got.ended = true;
  },
});
