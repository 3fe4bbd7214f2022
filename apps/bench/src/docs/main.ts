import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeDocs } from './write-docs.js';

let root = dirname(fileURLToPath(import.meta.url));
while (!existsSync(join(root, 'pnpm-workspace.yaml')) && dirname(root) !== root) root = dirname(root);
const changed = await writeDocs(root);
process.stdout.write(changed.length === 0 ? 'nothing has changed\n' : `${changed.join('\n')}\n`);
