import { copyFileSync } from 'node:fs';
import { build } from 'esbuild';

const options = { bundle: true, minify: true, loader: { '.safetensors': 'file' } };
await build({ ...options, entryPoints: ['main.js'], outdir: 'dist/esm', format: 'esm', platform: 'node' });
await build({
  ...options,
  entryPoints: ['main.js'],
  outdir: 'dist/cjs',
  format: 'cjs',
  platform: 'node',
  outExtension: { '.js': '.cjs' },
});
await build({ ...options, entryPoints: ['page.js'], outdir: 'dist/browser', format: 'esm' });
copyFileSync('index.html', 'dist/browser/index.html');
