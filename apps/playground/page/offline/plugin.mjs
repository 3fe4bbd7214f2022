import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

const read = (name) => readFileSync(new URL(name, import.meta.url), 'utf8');

/** Vite plugin: makes the site installable, and emits a service worker that knows the names of all its files. */
export const offlineSite = {
  name: 'offline-site',
  transformIndexHtml: () => [
    { tag: 'link', attrs: { rel: 'manifest', href: './manifest.webmanifest' }, injectTo: 'head' },
  ],
  generateBundle: {
    order: 'post',
    handler(_options, bundle) {
      this.emitFile({ type: 'asset', fileName: 'manifest.webmanifest', source: read('manifest.webmanifest') });
      this.emitFile({ type: 'asset', fileName: 'icon.svg', source: read('../icon.svg') });
      const built = Object.keys(bundle).filter((name) => !/(^|\/)(\.|licenses\.md)|\.map$/.test(name));
      const isLarge = (name) => name.endsWith('.safetensors');
      const named = (names) => JSON.stringify(names.map((name) => `./${name}`).sort(), null, 2);
      const small = ['', 'manifest.webmanifest', 'icon.svg', ...built.filter((name) => !isLarge(name))];
      const hash = createHash('sha256');
      for (const name of Object.keys(bundle).sort()) {
        const output = bundle[name];
        hash.update(output.type === 'chunk' ? output.code : output.source);
      }
      const source = read('service-worker.js')
        .replace('__VERSION__', hash.digest('hex').slice(0, 16))
        .replace('__FILES__', named(small))
        .replace('__LARGE_FILES__', named(built.filter(isLarge)));
      this.emitFile({ type: 'asset', fileName: 'service-worker.js', source });
    },
  },
};
