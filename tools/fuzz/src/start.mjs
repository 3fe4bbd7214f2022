/** Starts the program on the sources of the workspace: `node start.mjs [arguments]`. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { sourceArguments } from '@winnow/test-utils/source-process';

const main = fileURLToPath(new URL('main.ts', import.meta.url));
const child = spawn(process.execPath, [...sourceArguments, main, ...process.argv.slice(2)], { stdio: 'inherit' });
child.once('exit', (code, signal) => {
  process.exitCode = signal === null ? (code ?? 1) : 1;
});
