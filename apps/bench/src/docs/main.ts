import { fileURLToPath } from 'node:url';
import { writeDocs } from './write-docs.js';

/** The same folder from `src/docs` and from `dist`, whose depths differ. */
const up = import.meta.url.endsWith('.ts') ? '../../../..' : '../../..';
const changed = await writeDocs(fileURLToPath(new URL(up, import.meta.url)));
process.stdout.write(changed.length === 0 ? 'nothing has changed\n' : `${changed.join('\n')}\n`);
