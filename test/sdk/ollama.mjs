import { Ollama } from 'ollama';

import { main, question, tool, weather } from './run.mjs';

await main({
  async chat(run, got) {
    const stream = await new Ollama({ host: run.url }).chat({
      model: 'sim-1',
      stream: true,
      messages: [{ role: 'user', content: question }],
      ...(run.tools && { tools: [{ type: 'function', function: { ...tool, parameters: weather } }] }),
      ...(run.maxTokens && { options: { num_predict: run.maxTokens } }),
    });
    for await (const part of stream) {
      got.text += part.message.content;
      got.reasoning += part.message.thinking ?? '';
      for (const call of part.message.tool_calls ?? []) {
        got.tools.push({ id: call.id, name: call.function.name, arguments: JSON.stringify(call.function.arguments) });
      }
      if (part.done) {
        got.finish = part.done_reason;
        got.usage = { input: part.prompt_eval_count, output: part.eval_count };
        got.ended = true;
      }
    }
  },
});
