import { copyFileSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { build } from 'esbuild';

const options = { bundle: true, minify: true, sourcemap: true };
await build({ ...options, entryPoints: ['main.js'], outdir: 'dist/esm', format: 'esm', platform: 'node' });
// CommonJS has no import.meta
await build({
  ...options,
  entryPoints: ['main.js'],
  outfile: 'dist/cjs/main.cjs',
  format: 'cjs',
  platform: 'node',
  define: { 'import.meta.url': 'importMetaUrl' },
  banner: { js: "const importMetaUrl = require('node:url').pathToFileURL(__filename).href;" },
});
await build({ ...options, entryPoints: ['page.js'], outdir: 'dist/browser', format: 'esm' });
copyFileSync('index.html', 'dist/browser/index.html');

// esbuild leaves new URL('./file', import.meta.url) as it is, so that the file has to lie beside each bundle
const demoModel = createRequire(import.meta.url).resolve('@winnow/demo-model');
for (const name of ['esm', 'cjs', 'browser']) {
  mkdirSync(join('dist', name, 'model'), { recursive: true });
  copyFileSync(
    join(dirname(demoModel), 'model', 'model.safetensors'),
    join('dist', name, 'model', 'model.safetensors'),
  );
}
