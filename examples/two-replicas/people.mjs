// People who ask within eight seconds, each through the client of this project, which
// comes back by itself. It ends well if every one of them has had a whole answer,
// and says how often they came back.
//
//	node people.mjs <url> <how many>
import { createClient } from '../../client/index.js';

const [url, count] = [process.argv[2], Number(process.argv[3])];
let connections = 0;
const llm = createClient({
  base: url,
  fetch: (request) => {
    connections++;
    return fetch(request);
  },
});

const texts = new Map();
let failed = 0;
async function person(number) {
  await new Promise((arrived) => setTimeout(arrived, (8000 * number) / count));
  try {
    let text = '';
    for await (const delta of llm.post('/v1/chat/completions', { model: 'sim', stream: true, messages: [] })) {
      if (delta.type === 'text') text += delta.text;
    }
    texts.set(text, (texts.get(text) ?? 0) + 1);
  } catch (error) {
    failed++;
    console.error(error.message);
  }
}

const begin = Date.now();
await Promise.all(Array.from({ length: count }, (_, number) => person(number)));
const [whole] = [...texts.entries()].sort((a, b) => b[1] - a[1])[0] ?? ['', 0];
const same = texts.get(whole) ?? 0;
console.log(`${count} people: ${same} whole answers of ${whole.length} characters, ${count - same - failed} others, ${failed} errors, ` +
  `${connections} connections, ${((Date.now() - begin) / 1000).toFixed(1)} s`);
process.exit(same === count ? 0 : 1);
