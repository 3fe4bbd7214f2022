import { fileURLToPath } from 'node:url';

const folder = (name) => fileURLToPath(new URL(name, import.meta.url));

const browser = {
  mode: 'production',
  entry: './src/page.js',
  output: { path: folder('public'), filename: 'page.js' },
};

const node = {
  mode: 'production',
  target: 'node',
  entry: './src/main.js',
  output: { path: folder('dist'), filename: 'main.mjs', module: true },
  experiments: { outputModule: true },
};

export default [browser, node];
