import { defineConfig } from 'vite';

export default defineConfig({
  esbuild: { jsx: 'automatic' },
  // The page can be put under any path of a site.
  base: './',
  // With `npm run dev`, what is not the page's is Caddy's.
  server: { proxy: { '/v1': 'http://localhost:8080', '/llm': 'http://localhost:8080' } },
});
