import { main, question, tool } from './run.mjs';

// The argument is the package: ai, or the alias of another version of it.
const { DefaultChatTransport, readUIMessageStream } = await import(process.argv[2]);

await main({
  // chat is what useChat does: the transport asks, the reader puts the message
  // together.
  async chat(run, got) {
    const transport = new DefaultChatTransport({
      api: `${run.url}/v1/chat/completions`,
      body: {
        stream: true,
        ...(run.tools && { tools: [tool] }),
        ...(run.maxTokens && { max_tokens: run.maxTokens }),
        ...(run.choices && { n: run.choices }),
      },
    });
    const chunks = await transport.sendMessages({
      chatId: 'chat',
      trigger: 'submit-message',
      messages: [{ id: 'u', role: 'user', parts: [{ type: 'text', text: question }] }],
    });
    const [seen, stream] = chunks.tee();
    const watched = watch(seen, got).catch(() => {}); // the reader fails with the same error
    for await (const message of readUIMessageStream({ stream, terminateOnError: true })) read(message, got);
    await watched;
    got.ended = got.finish !== undefined;
  },
});

// watch keeps what is in the stream but not in the message.
async function watch(chunks, got) {
  for await (const chunk of chunks) {
    if (chunk.type === 'finish') got.finish = chunk.finishReason;
  }
}

function read(message, got) {
  const parts = type => message.parts.filter(p => p.type === type);
  got.text = parts('text').map(p => p.text).join('');
  got.reasoning = parts('reasoning').map(p => p.text).join('');
  got.tools = message.parts.filter(p => p.type.startsWith('tool-') && p.state !== 'input-streaming').map(p => ({
    id: p.toolCallId,
    name: p.type.slice('tool-'.length),
    arguments: p.state === 'output-error' ? String(p.rawInput ?? p.input) : JSON.stringify(p.input),
  }));
}
