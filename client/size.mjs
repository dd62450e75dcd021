// Checks what the client costs a page: under 4 KB, minified and gzipped.
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';

const limit = 4096;
const { outputFiles } = buildSync({
  entryPoints: [new URL('index.js', import.meta.url).pathname],
  minify: true,
  format: 'esm',
  target: 'es2022',
  write: false,
});
const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
console.log(`${size} bytes minified and gzipped, ${outputFiles[0].contents.length} minified; the limit is ${limit}`);
if (size > limit) process.exitCode = 1;
