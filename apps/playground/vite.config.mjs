import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';
import { offlineSite } from './page/offline/plugin.mjs';

const { version } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));

/** A page without a server that sends headers carries its policy itself. */
const staticPolicy = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self' blob:",
  "style-src 'self'",
  "img-src 'self' data:",
  // models of a hub and of its mirrors; MCP servers, also of this computer
  "connect-src 'self' https: http://127.0.0.1:* http://localhost:*",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

const policyInPage = {
  name: 'policy-in-page',
  transformIndexHtml: () => [
    {
      tag: 'meta',
      attrs: { 'http-equiv': 'Content-Security-Policy', content: staticPolicy },
      injectTo: 'head-prepend',
    },
  ],
};

/** Two homes of one page: beside a server (`dist/page`), and as a site of its own (`dist/static`). */
export default defineConfig(({ mode }) => ({
  root: `${import.meta.dirname}/page`,
  base: './',
  define: { 'import.meta.env.VERSION': JSON.stringify(version) },
  plugins: mode === 'static' ? [policyInPage, offlineSite] : [],
  worker: { format: 'es' },
  build: {
    outDir: `../dist/${mode === 'static' ? 'static' : 'page'}`,
    emptyOutDir: true,
    target: 'es2024',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: 'licenses.md' },
  },
}));
